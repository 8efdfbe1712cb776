"""Which links to widen: prices are exact, and what is gained is what planning again says."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import collopt
from collopt.topologies import Link, Topology, dgx_a100, ring, torus
from sample_sizes import examples
from strategies import switch_free_topologies


@st.composite
def two_way_topologies(draw: st.DrawFn, max_ranks: int) -> Topology:
    """A path through all ranks and up to five further links, of equal bandwidth in both directions."""
    ranks = draw(st.integers(2, max_ranks))
    pairs = {(rank, rank + 1) for rank in range(ranks - 1)}
    pairs |= draw(st.sets(st.sampled_from(list(combinations(range(ranks), 2))), max_size=5))
    rows = [(f"g{tail}", f"g{head}", draw(st.integers(1, 10))) for tail, head in sorted(pairs)]
    return Topology.from_links(rows, compute=[f"g{rank}" for rank in range(ranks)], bidirectional=True)


def widened(topology: Topology, tail: str, head: str, part: Fraction) -> Topology:
    """The same network with a link wider by a part of its bandwidth."""
    links = tuple(
        link._replace(bandwidth=link.bandwidth * (1 + part)) if link[:2] == (tail, head) else link
        for link in topology.links
    )
    return replace(topology, links=links)


def check_gains(topology: Topology, collective: str, part: Fraction) -> None:
    """Gains are those of the bounds, exactly, link by link; worths add up to the bandwidth."""
    frame = collopt.sensitivity(topology, collective, step=part)
    before = collopt.bound(topology, collective).algbw
    assert len(frame) == len(topology.links)
    assert frame["worth"].sum() == before
    for row in frame.itertuples():
        after = collopt.bound(widened(topology, row.tail, row.head, part), collective).algbw
        assert after - before == row.gain * part
        assert 0 <= row.gain <= row.worth == row.dual * row.bandwidth


@settings(max_examples=examples(15))
@given(topology=switch_free_topologies(max_ranks=4))
def test_gains_are_those_of_planning_again(topology: Topology) -> None:
    """Of an allgather."""
    check_gains(topology, "allgather", Fraction(1, 10))


def test_links_of_a_kind_are_widened_together() -> None:
    """In a cluster one wider link gains nothing, as another rank takes its place; wider NICs do."""
    topology = dgx_a100(boxes=2)

    def kind(link: Link) -> str:
        return "NIC" if link.bandwidth == 25 else "NVSwitch"

    alone = collopt.sensitivity(topology, "allgather", step=1)
    kinds = collopt.sensitivity(topology, "allgather", step=1, together=kind).drop_duplicates("group")
    assert (alone["gain"] == 0).all()
    assert kinds["gain"].sum() > 0
    assert kinds["worth"].sum() == collopt.bound(topology, "allgather").algbw
    nics = tuple(
        link._replace(bandwidth=link.bandwidth * 2) if kind(link) == "NIC" else link for link in topology.links
    )
    gained = collopt.bound(replace(topology, links=nics), "allgather").algbw - kinds["worth"].sum()
    assert kinds.set_index("group")["gain"]["NIC"] == gained


def test_the_slowest_link_of_a_one_way_ring_comes_first() -> None:
    """For allreduce and for broadcast: the bandwidth is its own, and no other has a price."""
    slow = ring(5, bandwidth=30, bidirectional=False).derate("gpu3", "gpu4", "1/3", bidirectional=False)
    for collective, root in (("allgather", None), ("allreduce", None), ("broadcast", "gpu0")):
        frame = collopt.sensitivity(slow, collective, root=root)
        assert frame.iloc[0][["tail", "head", "bandwidth"]].tolist() == ["gpu3", "gpu4", 10]
        assert frame["gain"].iloc[0] == frame["worth"].iloc[0] > 0
        assert (frame["dual"].iloc[1:] == 0).all()


def test_gains_of_uneven_switches_are_those_of_the_program() -> None:
    """Cuts bound rates where a switch takes in more than it gives out too."""
    links = [("a", "s", 30), ("b", "s", 20), ("c", "s", 20), ("s", "a", 10), ("s", "b", 25), ("s", "c", 15)]
    uneven = Topology.from_links(links, compute="abc", switches=["s"])
    before = collopt.planners.lp_bound(uneven, "allgather").algbw
    for row in collopt.sensitivity(uneven, "allgather", step=1).itertuples():
        after = collopt.planners.lp_bound(widened(uneven, row.tail, row.head, Fraction(1)), "allgather").algbw
        assert row.gain == after - before


@settings(max_examples=examples(15))
@given(topology=two_way_topologies(max_ranks=5))
def test_an_all_to_all_gains_what_its_bound_gains(topology: Topology) -> None:
    """By exact linear programs."""
    check_gains(topology, "all_to_all", Fraction(1, 2))


@pytest.mark.parametrize(
    ("collective", "options"),
    [
        ("allreduce", {}),
        ("broadcast", {"root": 2}),
        ("reduce", {"root": 0}),
        ("allgather", {"weights": [1, 2, 1, 1, 2, 1, 1, 2, 1]}),
    ],
)
def test_links_that_symmetries_take_to_each_other_gain_as_much(collective: str, options: dict[str, object]) -> None:
    """Only symmetries that keep root and shards, of which a torus has fewer than of nodes."""
    network = torus(3, 3)
    before = collopt.bound(network, collective, **options).algbw  # type: ignore[call-overload]
    for row in collopt.sensitivity(network, collective, step=1, **options).itertuples():  # type: ignore[arg-type]
        wider = widened(network, row.tail, row.head, Fraction(1))
        assert row.gain == collopt.bound(wider, collective, **options).algbw - before  # type: ignore[call-overload]


@settings(max_examples=examples(15))
@given(topology=two_way_topologies(max_ranks=5))
def test_an_allreduce_gains_what_its_linear_program_gains(topology: Topology) -> None:
    """On two-way links of equal bandwidth the strength is the optimum of all trees, with both directions wider."""
    part = Fraction(1, 3)
    before = collopt.planners.lp_bound(topology, "allreduce").algbw
    frame = collopt.sensitivity(topology, "allreduce", step=part, together=lambda link: frozenset(link[:2]))
    assert frame.drop_duplicates("group")["worth"].sum() == before
    for group, rows in frame.groupby("group"):
        tail, head = sorted(group)
        wider = widened(widened(topology, tail, head, part), head, tail, part)
        gain = rows["gain"].iloc[0]
        assert collopt.planners.lp_bound(wider, "allreduce").algbw - before == gain * part
        assert 0 <= gain <= rows["worth"].iloc[0]
