"""Traffic that switches with multicast or aggregation make redundant."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import collopt
from collopt.errors import CertificateError
from collopt.schedules import Forest, in_network
from collopt.topologies import Topology, dgx_h100, rail
from sample_sizes import examples
from strategies import eulerian_topologies


def star(*able: str) -> Topology:
    """Three ranks around one switch."""
    links = [(rank, "sw", 1) for rank in "abc"]
    return Topology.from_links(
        links, compute="abc", switches=["sw"], bidirectional=True, multicast=able, aggregation=able
    )


@settings(max_examples=examples(40))
@given(st.data(), eulerian_topologies(max_ranks=6, max_switches=4), st.sampled_from(["allgather", "reduce_scatter"]))
def test_everyone_still_gets_everything_once_and_loads_only_fall(
    data: st.DataObject, topology: Topology, collective: str
) -> None:
    """Whichever switches are able."""
    able = frozenset(data.draw(st.sets(st.sampled_from(topology.switch_nodes))) if topology.switch_nodes else ())
    topology = replace(topology, multicast=able, aggregation=able)
    plan = collopt.plan(topology, collective)
    (pruned,) = plan.in_network()
    pruned.verify()
    assert (pruned.link_loads <= plan.link_loads).all()
    assert 0 <= pruned.saving < 1
    if not able:
        assert pruned.saving == 0


def test_what_enters_ranks_stays() -> None:
    """Every rank receives each of the other shards once, which is why throughput does not change (section 5.6)."""
    plan = collopt.plan(star("sw"), "allgather")
    (pruned,) = plan.in_network()
    into = [link.head in "abc" for link in plan.topology.links]
    assert (pruned.link_loads[into] == plan.link_loads[into]).all()
    assert pruned.saving > 0


def test_the_figure_of_the_paper() -> None:
    """Figure 8: of a tree that sends twice through one switch, the second way there is deleted."""
    topology = dgx_h100(boxes=2)
    plan = collopt.plan(topology, "allgather")
    (pruned,) = plan.in_network()
    pruned.verify()
    assert Fraction(1, 4) < pruned.saving < Fraction(1, 2)


def test_switches_that_are_not_able_save_nothing() -> None:
    """Rail fabrics are modelled without multicast."""
    (pruned,) = collopt.plan(rail(2, 4), "allgather").in_network()
    assert pruned.saving == 0


def star_forest() -> Forest:
    """One star per root."""
    trees = [(root, 1, [(root, 3, rank) for rank in range(3) if rank != root]) for root in range(3)]
    return Forest.from_paths(3, 1, trees)


def test_a_copy_by_a_switch_that_cannot_is_refused() -> None:
    """The check looks at abilities itself."""
    pruned = in_network(star_forest(), star("sw"))
    pruned.verify()
    with pytest.raises(CertificateError, match="fails at 'sw'"):
        replace(pruned, topology=star()).verify()


def test_a_path_that_begins_where_no_data_is_is_refused() -> None:
    """Nobody sends to the switch any more."""
    pruned = in_network(star_forest(), star("sw"))
    skipped = np.where(pruned.forest.routes >= 0, 1, 0)
    with pytest.raises(CertificateError, match="tree 0"):
        replace(pruned, skipped=skipped).verify()
