"""What no allreduce can beat: which witness is the strongest, against all cuts and all partitions."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given, settings

import collopt
from collopt.planners.trees.strength import allreduce_bound
from collopt.schedules import Cut, Partition
from collopt.topologies import Topology, dgx_a100, dgx_h100, mi250, ring
from oracles.partitions import allreduce_limit, narrowest_alone, narrowest_cut
from sample_sizes import examples
from strategies import eulerian_topologies, switch_free_topologies


@settings(max_examples=examples(100))
@given(eulerian_topologies(max_ranks=4, max_switches=2))
def test_bound_is_the_best_of_all_cuts_and_partitions(topology: Topology) -> None:
    """Theorem 16 with every cut, and every partition; Corollary 18 is never stronger."""
    bound = allreduce_bound(topology)
    bound.verify()
    ranks = topology.num_ranks
    widest = max(narrowest_alone(topology, rank) for rank in topology.compute_nodes)
    assert bound.algbw == min(narrowest_cut(topology), allreduce_limit(topology))
    assert bound.algbw <= widest * ranks / (2 * (ranks - 1))


@settings(max_examples=examples(60))
@given(switch_free_topologies(max_ranks=5))
def test_one_way_networks_have_the_best_bounds_too(topology: Topology) -> None:
    """Only the sum of both directions matters to a partition."""
    bound = allreduce_bound(topology)
    bound.verify()
    assert bound.algbw == min(narrowest_cut(topology), allreduce_limit(topology))


@pytest.mark.parametrize(
    ("topology", "kind", "algbw"),
    [
        (ring(4), Partition, Fraction(4, 3)),
        (dgx_a100(boxes=2), Partition, Fraction(520, 3)),
        (dgx_a100(boxes=4), Partition, Fraction(4 * 200, 2 * 3)),
        (mi250(boxes=2), Partition, Fraction(2656, 15)),
        (dgx_h100(boxes=2), Cut, Fraction(400)),
        (Topology.from_links([("a", "b", 25), ("b", "c", 25)], compute="abc", bidirectional=True), Cut, Fraction(25)),
    ],
    ids=str,
)
def test_known_figures(topology: Topology, kind: type, algbw: Fraction) -> None:
    """From four boxes on the boxes decide: each takes in 2 (p - 1) / p of all data over its NICs."""
    bound = allreduce_bound(topology)
    bound.verify()
    assert (type(bound.witness), bound.algbw) == (kind, algbw)


@pytest.mark.parametrize(
    "topology", [dgx_a100(boxes=3), dgx_a100(boxes=8), mi250(), mi250(boxes=2), mi250(boxes=4)], ids=str
)
def test_partitions_prove_plans_optimal_that_no_cut_does(topology: Topology) -> None:
    """Neither condition of Theorem 19 of the pipeline paper holds for these."""
    plan = collopt.plan(topology, "allreduce", planner="forestcoll")
    assert isinstance(plan.bound.witness, Partition)
    assert plan.gap == 0


def test_boxes_that_add_up_inside_are_parties_like_any_other() -> None:
    """What a switch can do counts only where it stands between boxes."""
    network = dgx_a100(boxes=4)
    inside = frozenset(node for node in network.switch_nodes if node.endswith("nvswitch"))
    assert allreduce_bound(replace(network, aggregation=inside)).algbw == Fraction(400, 3)
    everywhere = allreduce_bound(replace(network, aggregation=frozenset(network.switch_nodes)))
    assert (type(everywhere.witness), everywhere.algbw) == (Cut, 200)


def test_bandwidths_without_a_common_unit_leave_out_the_costly_witness() -> None:
    """A partition's arithmetic may overflow int64 where a cut's does not: no error, and the bound still holds."""
    odd = [f"{number}.{digits}" for number, digits in ((1, "000000000039"), (2, "000000000061"), (3, "000000000007"))]
    links = [(f"gpu{rank}", f"gpu{(rank + 1) % 3}", bandwidth) for rank, bandwidth in enumerate(odd)]
    topology = Topology.from_links(links, compute=[link[0] for link in links], bidirectional=True)
    bound = allreduce_bound(topology)
    bound.verify()
    assert bound.algbw >= allreduce_limit(topology)
