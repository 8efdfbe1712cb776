"""Every collective that trees carry out: bounds against all cuts, plans that meet them, requests that make no sense."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import collopt
from collopt.errors import BoundError, CertificateError
from collopt.planners import Plan
from collopt.schedules import Allreduce, Bound, Cut, Forest, RankCuts
from collopt.topologies import Topology, dgx_a100, ring
from oracles.brute_force_cuts import largest_ratio
from sample_sizes import examples
from strategies import eulerian_topologies, switch_free_topologies

ONE_WAY = ("allgather", "reduce_scatter", "broadcast", "reduce")


def brute_force_rate(topology: Topology, collective: str, weights: list[int]) -> Fraction:
    """The largest ratio over all cuts, on the transposed network where data is added up."""
    tails, heads, capacities, unit = topology.arrays
    if collective in ("reduce_scatter", "reduce"):
        tails, heads = heads, tails
    return largest_ratio(len(topology.nodes), tails, heads, capacities, np.array(weights)) / unit


def shards(draw: st.DrawFn, topology: Topology, collective: str) -> tuple[dict[str, object], list[int]]:
    """Options for a collective and the shards that they mean."""
    ranks = topology.num_ranks
    if collective in ("broadcast", "reduce"):
        root = draw(st.integers(0, ranks - 1))
        return {"root": root}, [int(rank == root) for rank in range(ranks)]
    weights = draw(st.lists(st.integers(0, 4), min_size=ranks, max_size=ranks).filter(any))
    return {"weights": weights}, weights


@settings(max_examples=examples(60))
@given(st.data(), eulerian_topologies(max_ranks=6, max_switches=3), st.sampled_from(ONE_WAY))
def test_plans_meet_the_bound_of_all_cuts(data: st.DataObject, topology: Topology, collective: str) -> None:
    """For any shards and any root."""
    options, weights = data.draw(st.composite(lambda draw: shards(draw, topology, collective))())
    plan = collopt.plan(topology, collective, **options)
    plan.verify()
    # Rates count units of the weights in lowest terms.
    common = int(np.gcd.reduce(weights))
    assert plan.inverse_rate * common == brute_force_rate(topology, collective, weights)
    assert plan.gap == 0
    assert plan.schedule.root_weights.tolist() == [weight // common for weight in weights]


@settings(max_examples=examples(40))
@given(switch_free_topologies(max_ranks=6), st.sampled_from(["reduce_scatter", "allreduce"]))
def test_one_way_networks_reduce_along_their_links(topology: Topology, collective: str) -> None:
    """Where links have no opposite, trees towards the roots are trees of the transposed network."""
    plan = collopt.plan(topology, collective)
    plan.verify()
    if collective == "reduce_scatter":
        assert plan.gap == 0
    assert plan.gap >= 0


def test_allreduce_reuses_its_trees_on_a_symmetric_network() -> None:
    """Reduction and broadcast of a shard run along the same trees, in opposite directions."""
    schedule = collopt.plan(dgx_a100(boxes=2), "allreduce").schedule
    assert isinstance(schedule, Allreduce)
    assert schedule.reduce.routes is schedule.broadcast.routes


def test_only_roots_need_to_reach_everyone() -> None:
    """A rank that only receives is fine in a broadcast, and an error in an allgather."""
    topology = Topology.from_links([("a", "b", 1), ("b", "a", 1), ("b", "c", 1)], compute="abc")
    assert collopt.plan(topology, "broadcast", root="a").gap == 0
    with pytest.raises(BoundError, match="no path from rank 'c' to rank 'a'"):
        collopt.plan(topology, "broadcast", root="c")
    with pytest.raises(BoundError, match="no path from rank 'c' to rank 'a'"):
        collopt.plan(topology, "reduce", root="a")
    assert collopt.plan(topology, "reduce", root="c").gap == 0


def changed(plan: Plan, **fields: object) -> Plan:
    """The plan with other claims."""
    return replace(plan, **fields)


def test_a_plan_for_another_collective_is_refused() -> None:
    """Trees that spread do not add up, whatever the plan says."""
    plan = collopt.plan(ring(4), "allgather")
    bound = replace(plan.bound, collective="reduce_scatter")
    with pytest.raises(CertificateError, match="not of the kind that 'reduce_scatter' needs"):
        changed(plan, collective="reduce_scatter", bound=bound).verify()


def test_a_plan_for_other_shards_than_its_bound_is_refused() -> None:
    """A slower bound would make any plan look optimal."""
    plan = collopt.plan(ring(4), "allgather")
    other = collopt.bound(ring(4), "allgather", weights=[2, 1, 1, 1])
    with pytest.raises(CertificateError, match="shards differ"):
        changed(plan, bound=other).verify()


def test_an_allreduce_whose_halves_do_not_match_is_refused() -> None:
    """Two forests that spread, or different shards."""
    plan = collopt.plan(ring(4), "allreduce")
    schedule = plan.schedule
    assert isinstance(schedule, Allreduce)
    with pytest.raises(CertificateError, match="both parts of the allreduce"):
        changed(plan, schedule=Allreduce(schedule.broadcast, schedule.broadcast)).verify()
    weighted = collopt.plan(ring(4), "reduce_scatter", weights=[2, 1, 1, 1]).schedule
    assert isinstance(weighted, Forest)
    with pytest.raises(CertificateError, match="other shards"):
        changed(plan, schedule=Allreduce(weighted, schedule.broadcast)).verify()


def test_cuts_around_ranks_prove_only_what_they_say() -> None:
    """One per rank, each holding that rank alone, for allreduce only."""
    network = ring(4)
    cuts = tuple(Cut(frozenset({rank})) for rank in network.compute_nodes)
    bound = Bound.from_witness(network, "allreduce", RankCuts(cuts))
    assert bound.algbw == collopt.bound(network, "allreduce").algbw
    with pytest.raises(CertificateError, match="one per rank, 4"):
        replace(bound, witness=RankCuts(cuts[:3])).verify()
    with pytest.raises(CertificateError, match="does not contain this rank alone"):
        replace(bound, witness=RankCuts((*cuts[1::-1], *cuts[2:]))).verify()
    with pytest.raises(CertificateError, match="do not bound 'allgather'"):
        Bound(network, "allgather", bound.inverse_rate, bound.witness).verify()
