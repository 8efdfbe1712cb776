"""Traffic that switches with multicast or aggregation make redundant."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import collopt
from collopt.schedules import Forest, in_network, verified_loads
from collopt.topologies import SwitchLimits, Topology, dgx_h100, rail
from sample_sizes import examples
from strategies import eulerian_topologies

RANKS = ("a", "b", "c")


def star(*able: str, **limits: object) -> Topology:
    """Three ranks around one switch."""
    return Topology.from_links(
        [(rank, "sw", 1) for rank in RANKS],
        compute=RANKS,
        switches=["sw"],
        bidirectional=True,
        multicast=able,
        aggregation=able,
        limits=[SwitchLimits("sw", **limits)],  # type: ignore[arg-type]
    )


def saving(before: Forest, after: Forest, topology: Topology) -> Fraction:
    """Share of the traffic that is gone."""
    return 1 - Fraction(int(after.link_loads(topology).sum()), int(before.link_loads(topology).sum()))


@settings(max_examples=examples(60))
@given(st.data(), eulerian_topologies(max_ranks=6, max_switches=4), st.sampled_from(["allgather", "reduce_scatter"]))
def test_everyone_still_gets_everything_once_and_no_link_becomes_a_bottleneck(
    data: st.DataObject, topology: Topology, collective: str
) -> None:
    """Any abilities, loopback and group limits of switches keep the forest correct and its rate."""
    able = frozenset(data.draw(st.sets(st.sampled_from(topology.switch_nodes))) if topology.switch_nodes else ())
    limits = tuple(
        SwitchLimits(switch, data.draw(st.booleans()), data.draw(st.sampled_from([None, 3, 4])))
        for switch in sorted(able)
    )
    before = collopt.plan(topology, collective).schedule
    topology = replace(topology, multicast=able, aggregation=able, limits=limits)
    after = in_network(before, topology)
    loads = verified_loads(after, topology)
    assert np.array_equal(loads, after.link_loads(topology))
    assert after.inverse_rate(topology) <= before.inverse_rate(topology)
    assert (after.heights <= before.heights).all()
    if not topology.loopback:
        assert (loads <= before.link_loads(topology)).all()
    if not able:
        assert after is before


def test_what_enters_ranks_stays() -> None:
    """Every rank receives each of the other shards once, which is why throughput does not change (section 5.6)."""
    topology = star("sw")
    before, after = (collopt.plan(topology, "allgather", in_network=able) for able in (False, True))
    assert before.algbw == after.algbw
    into = [link.head in RANKS for link in topology.links]
    assert (before.link_loads[into] == after.link_loads[into]).all()
    assert saving(before.trees.forests[0], after.trees.forests[0], topology) > 0


@pytest.mark.parametrize("collective", ["allgather", "reduce_scatter"])
def test_the_figure_of_the_paper(collective: str) -> None:
    """Figure 8: of a tree that sends twice through one switch, the second way there is deleted."""
    topology = replace(dgx_h100(boxes=4), limits=())
    before, after = (collopt.plan(topology, collective, in_network=able) for able in (False, True))
    assert (after.algbw, after.gap) == (before.algbw, 0)
    assert Fraction(34, 100) < 1 - Fraction(int(after.link_loads.sum()), int(before.link_loads.sum())) < Fraction(1, 2)


def test_switches_that_are_not_able_save_nothing() -> None:
    """Rail fabrics are modelled without multicast."""
    topology = rail(2, 4)
    forest = collopt.plan(topology, "allgather").trees.forests[0]
    assert in_network(forest, topology) is forest


def star_forest() -> Forest:
    """One star per root."""
    trees = [(root, 1, [(root, 3, rank) for rank in range(3) if rank != root]) for root in range(3)]
    return Forest.from_paths(3, 1, trees)


def test_copies_are_looped_back_where_links_have_room() -> None:
    """Two copies out of each rank and into it: a third on the way in would slow everything down."""
    forest = star_forest()
    assert saving(forest, in_network(forest, star("sw")), star("sw")) == Fraction(1, 4)
    looping = star("sw", loopback=True)
    assert saving(forest, in_network(forest, looping), looping) == 0
    roomy = looping.with_bandwidths({("sw", rank): "3/2" for rank in RANKS})
    assert verified_loads(in_network(forest, roomy), roomy).tolist() == [1, 3] * 3


def test_groups_are_no_larger_than_switches_join() -> None:
    """The root and both others are three."""
    forest = star_forest()
    assert saving(forest, in_network(forest, star("sw", group=2)), star("sw")) == 0
    assert saving(forest, in_network(forest, star("sw", group=3)), star("sw")) == Fraction(1, 4)
