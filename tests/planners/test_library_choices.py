"""Baselines that are not patterns in steps: NCCL's choice by its own model, and switches unwound to rings."""

from __future__ import annotations

from fractions import Fraction

import pytest

import collopt
from collopt.errors import UnsupportedError
from collopt.planners import PLANNERS
from collopt.planners.literature.nccl_choice import machine_of, nccl_choices
from collopt.planners.literature.nccl_tuning import ALGORITHMS, Machine, choices, search
from collopt.runtime import lower, run_program
from collopt.schedules import ALLGATHER, ALLREDUCE, BROADCAST, Collective
from collopt.topologies import (
    Topology,
    build,
    dgx1_v100,
    dgx_a100,
    dgx_b200,
    dgx_h100,
    dgx_h200,
    gb200_nvl72,
    mi250,
    mi300x,
)

ZERO = Fraction(0)

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
        (dgx1_v100(), Machine(8, 1, "volta", Fraction(150), ZERO, ZERO, False, False)),
        (dgx_a100(boxes=3), Machine(24, 3, "ampere", Fraction(300), Fraction(200), Fraction(25), True, False)),
        (dgx_h100(boxes=2), Machine(16, 2, "hopper", Fraction(450), Fraction(400), Fraction(50), True, True)),
        (dgx_b200(), Machine(8, 1, "blackwell", Fraction(900), ZERO, ZERO, True, True)),
        (mi250(boxes=2), Machine(32, 2, "ampere", Fraction(350), Fraction(256), Fraction(16), False, False)),
        (ALONE, Machine(8, 8, "volta", ZERO, Fraction(25), Fraction(25), True, False)),
    ],
    ids=str,
)
def test_the_machine_is_seen_in_the_network(network: Topology, machine: Machine) -> None:
    """Hosts at a leaf switch are boxes of their own; NVLink's bandwidth tells the generation."""
    assert machine_of(network) == machine


def switched(gpu: str, per_box: int, boxes: int = 1, nics: int = 0, gigabits: int = 0, latency: int = 0) -> Machine:
    """A machine with NVSwitches."""
    rate, generation = {"A100": (300, "ampere"), "H100": (450, "hopper"), "B200": (900, "blackwell")}[gpu]
    nic, inside = Fraction(gigabits, 8), Fraction(rate if per_box > 1 else 0)
    has_nvls = gpu != "A100"
    return Machine(per_box * boxes, boxes, generation, inside, nic * nics, nic, True, has_nvls, Fraction(latency))


@pytest.mark.parametrize(
    ("machine", "ring", "tree", "heads"),
    [
        (switched("A100", 8), (12, 20, 20), (12, 20, 20), None),
        (switched("H100", 2), (12, 30, 30), (12, 60, 60), (2, 60)),
        (switched("H100", 5), (12, 30, 30), (12, 30, 30), (5, 60)),
        (switched("H100", 8), (12, 30, 30), (12, 30, 30), (8, 40)),
        (switched("B200", 4), (16, 45, 45), (16, 50, 50), (4, 90)),
        (switched("B200", 8), (16, 45, 45), (16, 45, 45), (8, 80)),
        (switched("A100", 8, 2, 8, 200), (8, 24, 24), (8, 30, 24), None),
        (switched("A100", 8, 4, 4, 100), (4, 12, 12), (4, 24, 12), None),
        (switched("H100", 8, 4, 8, 400), (8, 48, 48), (8, 48, 48), (8, 40)),
        (switched("H100", 8, 2, 8, 200), (8, 24, 24), (8, 48, 24), (8, 24)),
        (switched("B200", 8, 4, 8, 400), (8, 48, 48), (8, 96, 48), (8, 48)),
        (switched("H100", 1, 8, 1, 400), (2, 24, 24), (2, 48, 24), None),
    ],
    ids=str,
)
def test_channels_are_those_of_the_graph_search(
    machine: Machine, ring: tuple[int, ...], tree: tuple[int, ...], heads: tuple[int, int] | None
) -> None:
    """As the graph search of NCCL 2.30.7 prints them for such machines: channels, and GB/s inside and between."""
    assert search(machine, "ring") == ring
    assert search(machine, "tree") == tree
    found = search(machine, "nvls")
    assert (found[:2] if found.channels > 1 else None) == heads


@pytest.mark.parametrize(
    ("machine", "collective", "size", "algorithm", "protocol", "time"),
    [
        (switched("A100", 8), ALLREDUCE, 2**10, "ring", "LL", 15.0204334),
        (switched("A100", 8), ALLREDUCE, 2**20, "ring", "LL", 35.9236946),
        (switched("A100", 8), ALLREDUCE, 2**24, "ring", "LL128", 173.571594),
        (switched("A100", 8), ALLREDUCE, 2**30, "ring", "Simple", 7885.36621),
        (switched("A100", 8, 2, 8, 200), ALLREDUCE, 2**20, "tree", "LL128", 70.3453369),
        (switched("A100", 8, 2, 8, 200), ALLREDUCE, 2**30, "ring", "Simple", 10669.999),
        (switched("A100", 8, 4, 8, 200), ALLREDUCE, 2**24, "tree", "LL128", 344.77121),
        (switched("H100", 8), ALLREDUCE, 2**20, "ring", "LL", 28.0142403),
        (switched("H100", 8), ALLREDUCE, 2**30, "nvls", "Simple", 3972.58032),
        (switched("H100", 8), ALLGATHER, 2**30, "ring", "Simple", 2641.98901),
        (switched("H100", 8), BROADCAST, 2**30, "ring", "Simple", 2994.41626),
        (switched("H100", 8, 2, 8, 400, 75), ALLREDUCE, 2**16, "tree", "LL", 181.789841),
        (switched("H100", 8, 2, 8, 400, 75), ALLREDUCE, 2**24, "ring", "LL128", 332.343323),
        (switched("H100", 8, 2, 8, 400, 75), ALLREDUCE, 2**30, "nvls-tree", "Simple", 4728.29443),
        (switched("A100", 8, 4, 4, 100, 75), ALLREDUCE, 2**30, "ring", "Simple", 44997.0625),
        (switched("H100", 1, 8, 1, 400, 75), ALLGATHER, 2**24, "pat", "Simple", 637.005249),
    ],
    ids=str,
)
def test_times_are_those_of_the_library(
    machine: Machine, collective: Collective, size: int, algorithm: str, protocol: str, time: float
) -> None:
    """NCCL 2.30.7's own search.cc and tuning.cc computed them on a CPU, from topology files of such machines."""
    timed = [choice for name in ALGORITHMS[collective] for choice in choices(machine, collective, name, size, "2.30")]
    best = min(timed, key=lambda choice: choice.time)
    assert (best.algorithm, best.protocol) == (algorithm, protocol)
    assert float(best.time) == pytest.approx(time, rel=1e-6)


def test_choices_over_efa_are_near_those_that_amazon_tuned() -> None:
    """Regions of aws-ofi-nccl for two p5en (src/tuner/nccl_ofi_regions.cpp at 2daf7d30) end near those of the model."""
    efa = replace_latency(dgx_h200(boxes=2), 18)
    assert machine_of(efa).net_latency == 35
    regions = {"tree LL": 196608, "tree LL128": 13107200, "ring LL128": 29884416, "nvls-tree Simple": 2**34}
    start = 2**10
    for choice, end in regions.items():
        for size in (start * 3 // 2, end * 3 // 4):
            best = nccl_choices(efa, ALLREDUCE, size)[0]
            assert f"{best.algorithm} {best.protocol}" == choice, size
        start = end


def replace_latency(topology: Topology, microseconds: int) -> Topology:
    """Give links between NICs and the fabric another latency."""
    links = [link._replace(latency=Fraction(microseconds)) if "ib" in link[:2] else link for link in topology.links]
    return topology.changed(links=links)


def test_versions_agree_with_logs() -> None:
    """NCCL 2.27 ran LL rings up to 1M and NVLS from 2M on 8 H200, rings on 4 and NVLS on 5; on B200 NVLS from 6."""

    def chosen(topology: Topology, size: int) -> str:
        best = nccl_choices(topology, ALLREDUCE, size, version="2.27.5")[0]
        return f"{best.algorithm} {best.protocol}"

    assert [chosen(dgx_h200(), size) for size in (2**15, 2**20, 2**21, 2**33)] == ["ring LL"] * 2 + ["nvls Simple"] * 2
    assert [chosen(dgx_h200().restrict(range(n)), 2**33)[:4] for n in range(4, 8)] == ["ring"] + ["nvls"] * 3
    assert [chosen(dgx_b200().restrict(range(n)), 2**33)[:4] for n in range(4, 8)] == ["ring"] * 2 + ["nvls"] * 2


def test_racks_behind_host_memory_have_the_model_of_racks_with_gpudirect() -> None:
    """NCCL 2.26.2's own search finds as many heads of as much bandwidth on two racks of GB200, and these times."""
    racks = gb200_nvl72(boxes=2)
    assert search(machine_of(racks), "nvls") == (32, 20, 40)
    for size, time in ((2**29, 1059.63306), (2**31, 4079.53198), (2**33, 16159.1279)):
        best = nccl_choices(racks, ALLREDUCE, size, version="2.26.2")[0]
        assert (best.algorithm, best.protocol) == ("nvls-tree", "Simple")
        assert float(best.time) == pytest.approx(time, rel=1e-6)


@pytest.mark.parametrize(
    ("network", "collective", "size", "algorithm", "protocol"),
    [
        (dgx_a100(), "allreduce", 1024, "ring", "LL"),
        (dgx_a100(boxes=2), "allreduce", 512, "tree", "LL"),
        (dgx_h100(), "allreduce", 2**30, "nvls", "Simple"),
        (dgx_h100(boxes=2), "allreduce", 2**30, "nvls-tree", "Simple"),
        (
            build("leaf-spine", leaves=4, spines=2, hosts_per_leaf=2, host_bandwidth=50),
            "allgather",
            2**20,
            "pat",
            "Simple",
        ),
        (mi300x(), "reduce_scatter", 2**30, "ring", "Simple"),
    ],
    ids=str,
)
def test_plans_are_those_that_the_model_chooses(
    network: Topology, collective: str, size: int, algorithm: str, protocol: str
) -> None:
    """With its reasons as notes, and verified."""
    plan = collopt.plan(network, collective, planner="nccl", size=size)
    notes = plan.provenance
    assert (plan.planner, plan.options) == ("nccl", {"size": size})
    assert (notes["algorithm"], notes["protocol"]) == (algorithm, protocol)
    assert notes["planned_for"] == f"{size} bytes, NCCL's {algorithm} with {protocol}"
    plan.verify()


def test_another_version_is_an_option_of_the_plan() -> None:
    """Plans say it, and versions without a model are refused."""
    plan = collopt.plan(dgx_h200().restrict(range(5)), "allreduce", planner="nccl", size="8G", version="2.27.7")
    assert (plan.options["version"], plan.provenance["algorithm"]) == ("2.27.7", "nvls")
    for version in ("2.18.5", "3", "newest"):
        with pytest.raises(UnsupportedError, match="version"):
            collopt.plan(dgx_a100(), "allreduce", planner="nccl", version=version)


def test_nics_that_gpus_share_count_at_their_own_rate() -> None:
    """Two GPUs and two NICs behind one PCIe switch: a GPU reaches both at half their rate, and NCCL uses one."""
    links: list[tuple[str, str, Fraction | int]] = []
    for box in ("box0", "box1"):
        for number in range(2):
            links.append((f"{box}/gpu{number}", f"{box}/nvswitch", 300))
            links.append((f"{box}/nic{number}", "ib", 25))
            links += [(f"{box}/gpu{number}", f"{box}/nic{nic}", Fraction(25, 2)) for nic in range(2)]
    gpus = [f"{box}/gpu{number}" for box in ("box0", "box1") for number in range(2)]
    switches = ["ib", *(f"{box}/{name}" for box in ("box0", "box1") for name in ("nvswitch", "nic0", "nic1"))]
    network = Topology.from_links(links, compute=gpus, switches=switches, bidirectional=True)
    machine = machine_of(network)
    assert (machine.nic_rate, machine.box_rate, machine.nics) == (25, 50, 2)
