"""Public measurements: their machines, and that none beats a proven bound."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import cache

import pandas as pd
import pytest

import collopt
from collopt.runtime import machine_of, measurements, network
from collopt.schedules import COLLECTIVES
from collopt.topologies import Topology, build, dgx_a100, dgx_b200, dgx_h100, dgx_h200, mi300x, ring

ROWS = measurements()
COMPARABLE = ROWS[ROWS.busbw_gbps.notna() & ROWS.machine.notna() & ROWS.collective.isin(COLLECTIVES)]
MACHINES = COMPARABLE.drop_duplicates(["machine", "collective"])


@cache
def busbw(machine: str, collective: str) -> Fraction | None:
    """The proven bound on a measured machine; None if the catalogue does not have it."""
    row = MACHINES[MACHINES.machine == machine].iloc[0]
    topology = network(row)
    if topology is None:
        return None
    proven = collopt.bound(topology, collective)  # type: ignore[arg-type]
    proven.verify()
    return proven.busbw


def test_no_measurement_exceeds_a_bound() -> None:
    """Whatever the software; racks together, which take long, are left to a slow test."""
    rows = COMPARABLE[COMPARABLE.boxes < 20]
    bounds = [busbw(row.machine, row.collective) for row in rows.itertuples()]
    compared = [(row, bound) for row, bound in zip(rows.itertuples(), bounds, strict=True) if bound is not None]
    assert [row for row, bound in compared if Fraction(row.busbw_gbps) > bound] == []
    assert len(compared) >= 374


@pytest.mark.slow
def test_no_measurement_of_many_racks_exceeds_a_bound() -> None:
    """Twenty racks of GB200."""
    rows = COMPARABLE[COMPARABLE.boxes == 20]
    assert [row for row in rows.itertuples() if Fraction(row.busbw_gbps) > (busbw(row.machine, "allreduce") or 0)] == []


def test_rows_have_a_source_and_consistent_bandwidths() -> None:
    """Bus bandwidth is that of nccl-tests for the ranks, and the time that of the size, to the digits printed."""
    assert len(ROWS) >= 587
    assert ROWS[["table", "source_repo", "source_path"]].notna().all(axis=None)
    for row in COMPARABLE[COMPARABLE.ranks.notna() & COMPARABLE.algbw_gbps.gt(1)].itertuples():
        factor = float(COLLECTIVES[row.collective].bus_factor(int(row.ranks)))
        assert math.isclose(row.busbw_gbps, factor * row.algbw_gbps, rel_tol=0.01), row
        if pd.notna(row.time_us):
            assert math.isclose(row.size_bytes / row.time_us / 1000, row.algbw_gbps, rel_tol=0.03), row


@pytest.mark.parametrize(
    ("topology", "machines"),
    [
        (dgx_h100(), ("8 x H100", "8 x H200")),
        (dgx_h200(), ("8 x H100", "8 x H200")),
        (dgx_h200().restrict(range(4)), ("4 x H200", "4 x H100")),
        (dgx_h100(boxes=2), ("2 boxes of 8 x H100, 32 NICs of 100 Gb/s", "2 boxes of 8 x H100, 8 NICs of 400 Gb/s")),
        (dgx_a100(boxes=2), ("2 boxes of 8 x A100, 8 NICs of 200 Gb/s",)),
        (dgx_b200().derate("box0/gpu0", "box0/nvswitch", "1/2"), ("8 x B200",)),
        (mi300x(), ("8 x MI300X",)),
        (dgx_h100(boxes=3), ()),
        (ring(8), ()),
        (build("leaf-spine", leaves=4, spines=2, hosts_per_leaf=2), ()),
    ],
    ids=str,
)
def test_a_network_compares_to_machines_of_its_shape(topology: Topology, machines: tuple[str, ...]) -> None:
    """By GPUs, boxes and NICs, with other names, and with a broken link."""
    assert machine_of(topology) == machines
    names = {node: f"n{number}" for number, node in enumerate(topology.nodes)}
    renamed = Topology.from_links(
        [(names[tail], names[head], *rest) for tail, head, *rest in topology.links],
        compute=[names[node] for node in topology.compute_nodes],
        switches=[names[node] for node in topology.switch_nodes],
        multicast=[names[node] for node in topology.multicast],
        aggregation=[names[node] for node in topology.aggregation],
        name="renamed",
    )
    assert machine_of(renamed) == machines


def test_every_measured_machine_compares_to_itself() -> None:
    """Networks of the catalogue with other NICs, and parts of boxes."""
    for row in MACHINES[MACHINES.boxes < 20].drop_duplicates("machine").to_dict("records"):
        topology = network(row)
        assert topology is None or row["machine"] in machine_of(topology)
