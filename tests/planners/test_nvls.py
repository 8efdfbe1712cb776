"""NCCL's algorithms with switches that add up and copy: known values, trees, random networks, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import collopt
from collopt.errors import UnsupportedError
from collopt.planners import PLANNERS, compare
from collopt.topologies import (
    SwitchLimits,
    Topology,
    dgx_a100,
    dgx_h100,
    gb200_nvl72,
    leaf_spine,
    mi300x,
    rail,
)
from sample_sizes import examples
from strategies import eulerian_topologies

PATTERNS = ("nvls", "nvls-tree", "collnet")


def with_able(topology: Topology, *endings: str, **limits: int) -> Topology:
    """The network whose switches with such names multicast and aggregate."""
    able = frozenset(switch for switch in topology.switch_nodes if switch.endswith(endings))
    rows = tuple(SwitchLimits(switch, **limits) for switch in sorted(able)) if limits else ()  # type: ignore[arg-type]
    return replace(topology, multicast=able, aggregation=able, limits=rows)


@pytest.mark.parametrize(
    ("planner", "topology", "collective", "algbw"),
    [
        # n shares come in on each link with the sum of one: n / (n + 1) of 450 GB/s.
        ("nvls", dgx_h100(), "allreduce", 400),
        ("nvls", dgx_h100(), "allgather", 450),  # where direct sends leave one of eight shards out: 514 GB/s
        ("nvls", dgx_h100(), "reduce_scatter", 450),
        ("nvls", dgx_h100(loopback=False), "allreduce", 450),
        ("nvls", gb200_nvl72(), "allreduce", Fraction(900 * 32, 33)),  # 32 heads of 72
        # Two boxes: every box sends and receives each half of the data once.
        ("nvls-tree", dgx_h100(2), "allreduce", 400),
        ("nvls-tree", dgx_h100(3), "allreduce", Fraction(800, 3)),
        # A box with two boxes below it in one tree and none in the other: four halves each way.
        ("nvls-tree", dgx_h100(4), "allreduce", 200),
        ("nvls-tree", dgx_h100(8), "allreduce", 200),
        # All data goes out and in once.
        ("nvls", rail(8, sharp=True), "allreduce", 400),
        ("nvls", with_able(dgx_h100(4), "nvswitch", "ib"), "allreduce", 400),
        # Seven of eight shares cross a link twice each way.
        ("collnet", rail(8, sharp=True), "allreduce", Fraction(8 * 450, 14)),
        ("collnet", with_able(dgx_a100(8), "ib"), "allreduce", Fraction(8 * 300, 14)),
        ("collnet", with_able(mi300x(4), "ib"), "allreduce", 256),  # xGMI: one of eight shares each way, twice
        # Hosts on a leaf with two spines above: the first of three shares is reduced over the same spine as the third.
        ("nvls", with_able(leaf_spine(3, 2, 3), "0", "1", "2"), "allreduce", Fraction(75, 4)),
    ],
    ids=str,
)
def test_known_values(planner: str, topology: Topology, collective: str, algbw: Fraction) -> None:
    """Counted by hand, with what switches loop back."""
    plan = collopt.plan(topology, collective, planner=planner)  # type: ignore[arg-type]
    plan.verify()
    assert plan.algbw == algbw
    assert plan.gap == 1 - algbw / collopt.bound(topology, collective).algbw  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("topology", "rates"),
    [
        (dgx_h100(), {"auto": 400, "nvls": 400, "ring": Fraction(1800, 7)}),
        (dgx_h100(2), {"auto": 400, "nvls-tree": 400, "ring": Fraction(640, 3)}),
        (dgx_h100(3), {"auto": 300, "nvls-tree": Fraction(800, 3), "ring": Fraction(4800, 23)}),
        (dgx_h100(4), {"auto": Fraction(800, 3), "nvls-tree": 200, "ring": Fraction(6400, 31)}),
        (dgx_h100(8), {"auto": Fraction(1600, 7), "nvls-tree": 200, "ring": Fraction(12800, 63)}),
        (
            gb200_nvl72(),
            {
                "auto": Fraction(64800, 73),  # n / (n + 1) of 900 GB/s
                "nvls": Fraction(9600, 11),
                "ring": Fraction(32400, 71),
                "double-binary-tree": 450,
            },
        ),
        # 32 heads use 32 of 72 NICs, twice in binary trees.
        pytest.param(
            gb200_nvl72(8),
            {"strength": Fraction(64800, 73), "nvls-tree": 800, "double-binary-tree": Fraction(64800, 142)},
            marks=pytest.mark.slow,
        ),
    ],
    ids=str,
)
def test_our_plans_are_as_fast_or_faster(topology: Topology, rates: dict[str, Fraction]) -> None:
    """As NCCL's, in one comparison."""
    table = compare(topology, "allreduce", planners=list(rates), bounds=[])
    assert dict(zip(table["planner"], table["algbw_exact"], strict=True)) == rates


@st.composite
def random_boxes(draw: st.DrawFn) -> Topology:
    """Boxes of different sizes with a switch or two, of which some can do nothing, around one or two more."""
    sizes = draw(st.lists(st.integers(1, 4), min_size=1, max_size=4).filter(lambda sizes: sum(sizes) > 1))
    ranks = [[f"{box}.{gpu}" for gpu in range(size)] for box, size in enumerate(sizes)]
    inside = [[f"{box}.switch{number}" for number in range(draw(st.integers(1, 2)))] for box in range(len(sizes))]
    fabric = [f"spine{number}" for number in range(draw(st.integers(1, 2)))] if len(sizes) > 1 else []
    leaves = [f"{box}.leaf" for box in range(len(sizes))] if fabric else []
    links = [(rank, switch, 8) for box, own in enumerate(ranks) for switch in inside[box] for rank in own]
    links += [(rank, leaf, draw(st.integers(1, 3))) for leaf, own in zip(leaves, ranks, strict=False) for rank in own]
    links += [(leaf, spine, draw(st.integers(1, 5))) for leaf in leaves for spine in fabric]
    switches = [*leaves, *fabric, *(switch for own in inside for switch in own)]
    ports = {switch: sum(switch in link for link in links) for switch in switches}
    able = [switch for switch in switches if ports[switch] > 1 and draw(st.integers(0, 9))]
    groups = st.sampled_from([None, None, None, 2, 4])
    limits = [SwitchLimits(switch, draw(st.booleans()), draw(groups)) for switch in able]
    return Topology.from_links(
        links,
        compute=[rank for own in ranks for rank in own],
        switches=switches,
        bidirectional=True,
        multicast=able,
        aggregation=able,
        limits=limits,
    )


@given(st.one_of(random_boxes(), eulerian_topologies()), st.sampled_from(PATTERNS))
@settings(max_examples=examples(150), deadline=None)
def test_random_networks_have_a_verified_plan_or_a_reason(topology: Topology, planner: str) -> None:
    """Never one beyond its bound."""
    for collective in map(str, PLANNERS[planner].collectives):
        try:
            plan = collopt.plan(topology, collective, planner=planner)  # type: ignore[arg-type]
        except UnsupportedError:
            continue
        plan.verify()
        assert plan.gap >= 0
