"""Baselines that are not patterns in steps: NCCL's choice by its own model, and switches unwound to rings."""

from __future__ import annotations

import pytest

import collopt
from collopt.planners import PLANNERS
from collopt.planners.literature.nccl_choice import Machine, machine_of
from collopt.runtime import lower, run_program
from collopt.topologies import Topology, build, dgx1_v100, dgx_a100, dgx_b200, dgx_h100, mi250, mi300x

ALONE = build("leaf-spine", leaves=4, spines=2, hosts_per_leaf=2)


def two_boxes_at_a_switch() -> Topology:
    """ForestColl's Figure 15a: two boxes of four, with ten times the bandwidth inside."""
    names = [f"box{box}/gpu{gpu}" for box in range(2) for gpu in range(4)]
    links = [(name, f"{name.partition('/')[0]}/switch", 10) for name in names] + [(name, "fabric", 1) for name in names]
    switches = ["box0/switch", "box1/switch", "fabric"]
    return Topology.from_links(links, compute=names, switches=switches, bidirectional=True, name="figure 15a")


@pytest.mark.parametrize("collective", [*map(str, PLANNERS["ring-unwinding"].collectives)])
@pytest.mark.parametrize("network", [two_boxes_at_a_switch(), dgx_a100(boxes=2), mi300x(boxes=2)], ids=str)
def test_plans_on_unwound_switches_are_verified_and_move_the_right_data(network: Topology, collective: str) -> None:
    """On the links of the network itself."""
    root = {"root": 3} if collective in ("broadcast", "reduce") else {}
    plan = collopt.plan(network, collective, planner="ring-unwinding", **root)  # type: ignore[arg-type]
    plan.verify()
    assert plan.topology is network
    run_program(lower(plan.schedule, collective), interleavings=1)


def test_unwound_switches_cost_what_forestcoll_says() -> None:
    """The bottleneck of Figure 15a gets four times as slow; inside one box nothing is lost."""
    plan = collopt.plan(two_boxes_at_a_switch(), "allgather", planner="ring-unwinding")
    assert plan.bound.algbw / plan.algbw == 4
    assert collopt.plan(dgx_a100(), "allreduce", planner="ring-unwinding").gap == 0


@pytest.mark.parametrize(
    ("network", "machine"),
    [
        (dgx1_v100(), Machine(8, 1, "volta")),
        (dgx_a100(boxes=3), Machine(24, 3, "ampere")),
        (dgx_h100(boxes=2), Machine(16, 2, "hopper")),
        (dgx_b200(), Machine(8, 1, "blackwell")),
        (mi250(boxes=2), Machine(32, 2, "ampere")),
        (ALONE, Machine(8, 8, "volta")),
    ],
    ids=str,
)
def test_the_machine_is_seen_in_the_network(network: Topology, machine: Machine) -> None:
    """Hosts at a leaf switch are boxes of their own; NVLink's bandwidth tells the generation."""
    assert machine_of(network) == machine


@pytest.mark.parametrize(
    ("network", "collective", "size", "algorithm", "protocol", "time"),
    [
        # 6.6 + 14 steps of 0.6 us, and 87.7 GB/s on the bus, which are 350.8 / 7 GB/s of data.
        (dgx_a100(), "allreduce", 1024, "ring", "LL", 15 + 1.024 * 7 / 350.8),
        # 14 + 14 of 1.9, and 0.92 of the ring's 1200 / 7 GB/s.
        (dgx_a100(), "allreduce", 2**24, "ring", "LL128", 40.6 + 2**24 * 7 / 1200 / 0.92 / 1000),
        (dgx_a100(), "allgather", 2**30, "ring", "Simple", 8.4 + 7 * 3.4 + 2**30 * 7 / 2400 / 1000),
        # 6.8 + 2 (7 of 0.6 + 1 of 5.0), and 39 / 2 GB/s; no correction at 1 KB.
        (dgx_a100(boxes=2), "allreduce", 512, "tree", "LL", 25.2 + 0.512 / 19.5),
        # 25 us, and 0.85 of the plan's 450 GB/s by one switch.
        (dgx_h100(), "allreduce", 2**30, "nvls", "Simple", None),
        # 8 + 3 of 14 / 3.5 + 8 of 2.8.
        (ALONE, "allgather", 2**16, "pat", "Simple", None),
        (dgx_a100(boxes=4), "allreduce", 2**16, "tree", "LL", None),
        (dgx_a100(boxes=4), "allreduce", 2**30, "ring", "Simple", None),
    ],
    ids=str,
)
def test_choices_are_those_of_the_model(
    network: Topology, collective: str, size: int, algorithm: str, protocol: str, time: float | None
) -> None:
    """Worked out by hand from src/graph/tuning.cc of NCCL."""
    plan = collopt.plan(network, collective, planner="nccl", size=size)
    notes = plan.provenance
    assert (plan.planner, plan.options) == ("nccl", {"size": size})
    assert (notes["algorithm"], notes["protocol"]) == (algorithm, protocol)
    assert notes["planned_for"] == f"{size} bytes, NCCL's {algorithm} with {protocol}"
    if time is not None:
        assert notes["nccl_us"] == pytest.approx(time, abs=0.002)
    plan.verify()
