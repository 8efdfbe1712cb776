"""Breadth-first broadcast: its costs against linear programs and the paper, its schedules against the checker."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collopt.errors import BoundError, CapacityOverflowError, UnsupportedError
from collopt.formulations import bfb as programs
from collopt.planners.direct_connect.bfb import (
    bfb_cost,
    bfb_schedule,
    demands_of,
    divisible_times,
    fastest_chunks,
    plan_bfb,
    read_network,
    timed_bfb,
)
from collopt.schedules import Cut, Partition, StepAllreduce, schedule_time, step_cost, verified_loads
from collopt.solvers.lp.session import solve
from collopt.solvers.steps.load_balancing import busiest_sets, chunked_times
from collopt.topologies import DirectGraph, Topology, complete, dgx_a100, generalized_kautz, ring, torus
from oracles.bfb_subsets import diameter_of, least_load, least_time, offered_links
from sample_sizes import examples
from strategies import bandwidths, switch_free_topologies


@st.composite
def regular_graphs(draw: st.DrawFn, max_nodes: int = 8) -> DirectGraph:
    """Unions of up to four permutations, one of them a cycle through all; parallel arcs and self-loops occur."""
    size = draw(st.integers(2, max_nodes))
    order = draw(st.permutations(range(size)))
    arcs = list(zip(order, order[1:] + order[:1], strict=True))
    for _ in range(draw(st.integers(0, 3))):
        arcs += enumerate(draw(st.permutations(range(size))))
    return DirectGraph.from_arcs(size, arcs, "random regular")


def one_way_pair(count: int) -> Topology:
    """A directed ring whose first link is `count` times as fast."""
    return Topology.from_links([("a", "b", count), ("b", "c", 1), ("c", "a", 1)], compute="abc")


def loads_of(network: DirectGraph | Topology, direction: Any = "broadcast") -> list[Fraction]:
    """Time of each step, in shards per arc or ns per byte of shard."""
    problem = read_network(network, direction)
    return [found.load / problem.unit for found in busiest_sets(problem.intake)]


def chunked_factor(graph: DirectGraph, chunks: int) -> Fraction:
    """T_B of the best broadcast of so many chunks per shard: integer program (13)."""
    problem = read_network(graph)
    times = chunked_times(problem.intake, busiest_sets(problem.intake), chunks)
    return Fraction(graph.degree, graph.num_nodes * chunks) * sum(times) / problem.unit


@settings(max_examples=examples(40))
@given(graph=regular_graphs())
def test_all_solvers_and_the_oracle_agree(graph: DirectGraph) -> None:
    """As fractions, with parallel arcs and self-loops."""
    topology = Topology.from_graph(graph)
    loads = [
        max(least_load(topology, distance, rank) for rank in topology.compute_nodes)
        for distance in range(1, diameter_of(topology) + 1)
    ]
    cost = bfb_cost(graph)
    assert cost == (len(loads), Fraction(graph.degree, graph.num_nodes) * sum(loads))
    assert cost == bfb_cost(graph, solver="subsets") == bfb_cost(graph, solver="newton") == bfb_cost(topology)
    assert graph.num_nodes > 5 or cost == bfb_cost(graph, solver="lp")
    assert loads_of(graph) == loads


@settings(max_examples=examples(40))
@given(graph=regular_graphs(), chunks=st.one_of(st.none(), st.integers(1, 6)))
def test_schedules_are_valid_and_cost_what_is_promised(graph: DirectGraph, chunks: int | None) -> None:
    """The checker accepts them, and their loads add up to the formulas' values."""
    schedule = bfb_schedule(graph, chunks=chunks)
    verified_loads(schedule, Topology.from_graph(graph))
    best = bfb_cost(graph)
    factor = best.bandwidth_factor if chunks is None else chunked_factor(graph, chunks)
    assert step_cost(graph, schedule) == (best.steps, factor)


@settings(max_examples=examples(40))
@given(topology=switch_free_topologies(max_ranks=7), data=st.data())
def test_schedules_on_unequal_links_reach_the_linear_program(topology: Topology, data: st.DataObject) -> None:
    """In both directions, on networks that are not regular."""
    direction: Any = data.draw(st.sampled_from(["broadcast", "reduce"]))
    schedule = bfb_schedule(topology, direction=direction)
    verified_loads(schedule, topology)
    loads = loads_of(topology, direction)
    assert schedule.direction == direction
    assert schedule.num_steps == len(loads)
    assert schedule.inverse_rate(topology) == sum(loads)


@settings(max_examples=examples(25))
@given(topology=switch_free_topologies(max_ranks=5, max_bandwidth=3), chunks=st.integers(1, 4))
def test_whole_chunks_are_shared_out_as_the_integer_program_would(topology: Topology, chunks: int) -> None:
    """Integer program (13) with links of different bandwidth, step by step."""
    schedule = bfb_schedule(topology, chunks=chunks)
    loads = verified_loads(schedule, topology)
    for distance in range(1, diameter_of(topology) + 1):
        best = max(solve(programs.build_chunked(topology, distance, chunks)).values["busiest"].values())
        reached = max(
            load / link.bandwidth for load, link in zip(loads[distance - 1].tolist(), topology.links, strict=True)
        )
        assert float(reached) == pytest.approx(best, abs=1e-6)


@settings(max_examples=examples(30))
@given(topology=switch_free_topologies(max_ranks=6), data=st.data())
def test_a_witness_shows_every_load(topology: Topology, data: st.DataObject) -> None:
    """No link outside the set brings what is counted."""
    problem = read_network(topology)
    distance, found = data.draw(st.sampled_from(list(enumerate(busiest_sets(problem.intake), 1))))
    chosen = {topology.links[number] for number in found.links}
    masks = offered_links(topology, distance, topology.compute_nodes[found.rank])
    assert found.shards == sum(mask <= chosen for mask in masks)
    assert found.width * problem.unit == sum(link.bandwidth for link in chosen)


@settings(max_examples=examples(20))
@given(graph=regular_graphs(max_nodes=6), most=st.integers(1, 9))
def test_the_best_number_of_chunks_is_the_best(graph: DirectGraph, most: int) -> None:
    """Of all that may be tried, the first of the fastest."""
    costs = [chunked_factor(graph, chunks) for chunks in range(1, most + 1)]
    problem = read_network(graph)
    assert fastest_chunks(problem, busiest_sets(problem.intake), most) == costs.index(min(costs)) + 1


def test_too_many_chunks_are_not_what_anybody_wants() -> None:
    """Where the optimum needs more than 2^20, the best number up to 256 is taken."""
    ends = [("b", "a"), ("b", "c"), ("a", "d"), ("d", "c"), ("c", "a"), ("d", "b")]
    links: list[Any] = [("a", "b", "1.0000003"), ("c", "b", "1.0000001"), *((*pair, 1) for pair in ends)]
    topology = Topology.from_links(links, compute="abcd")
    schedule = bfb_schedule(topology)
    verified_loads(schedule, topology)
    assert schedule.chunks_per_shard <= 256
    best = sum(loads_of(topology))
    assert best <= schedule.inverse_rate(topology) <= best * Fraction(101, 100)


@pytest.mark.parametrize("collective", ["allgather", "reduce_scatter", "allreduce"])
def test_plans_of_tori_are_optimal(collective: str) -> None:
    """And say so by a cut that takes no search."""
    plan = plan_bfb(torus(3, 4, bandwidth=25), collective)
    plan.verify()
    assert plan.gap == 0
    assert isinstance(plan.bound.witness, Partition if collective == "allreduce" else Cut)
    assert plan.link_loads.shape == (6 if collective == "allreduce" else 3, len(plan.topology.links))
    assert plan.provenance["diameter"] == 3
    # On a network without opposite links the reduction and the broadcast differ.
    one_way = generalized_kautz(2, 7, bandwidth=10)
    plan = plan_bfb(one_way, "allreduce", chunks=6)
    assert isinstance(plan.schedule, StepAllreduce)
    assert plan.options == {"chunks": 6}
    parts = [plan_bfb(one_way, each, chunks=6).inverse_rate for each in ("reduce_scatter", "allgather")]
    assert plan.inverse_rate == sum(parts)


def test_a_plan_that_misses_the_simple_bound_gets_the_true_one() -> None:
    """Behind a slow link the worst cut is not around a single rank."""
    box = [(tail, head, 10) for tail, head in ("ab", "ba", "bc", "cb", "ca", "ac")]
    other = [(tail + "2", head + "2", 10) for tail, head, _ in box]
    topology = Topology.from_links(
        [*box, *other, ("a", "a2", 1), ("a2", "a", 1)], compute=["a", "b", "c", "a2", "b2", "c2"]
    )
    plan = plan_bfb(topology, "allgather")
    assert isinstance(plan.bound.witness, Cut)
    assert plan.bound.inverse_rate == 3
    assert 0 < plan.gap < Fraction(1, 3)


def with_latencies(topology: Topology, latency: Callable[[], Fraction]) -> Topology:
    """The topology with a new latency on every link."""
    links = [link._replace(latency=latency()) for link in topology.links]
    return Topology.from_links(links, compute=topology.compute_nodes, name="with latencies")


@settings(max_examples=examples(40))
@given(topology=switch_free_topologies(max_ranks=6, max_bandwidth=4), data=st.data())
def test_steps_with_latencies_take_the_time_of_the_worst_set(topology: Topology, data: st.DataObject) -> None:
    """As the oracle, which looks at all sets of links, has it."""
    topology = with_latencies(topology, lambda: data.draw(st.sampled_from([Fraction(1, 2), Fraction(2), Fraction(9)])))
    shard = data.draw(st.sampled_from([1, 1500, 40000]))
    assert divisible_times(demands_of(topology, "broadcast")[1], Fraction(shard)) == tuple(
        max(least_time(topology, distance, rank, shard) for rank in topology.compute_nodes)
        for distance in range(1, diameter_of(topology) + 1)
    )


@settings(max_examples=examples(40))
@given(topology=switch_free_topologies(max_ranks=6, max_bandwidth=4), data=st.data())
def test_timed_schedules_are_valid_and_tell_their_time(topology: Topology, data: st.DataObject) -> None:
    """In both directions; more chunks come at least within a chunk per step of the limit."""
    topology = with_latencies(topology, lambda: data.draw(bandwidths(9)))
    direction: Any = data.draw(st.sampled_from(["broadcast", "reduce"]))
    chunks = data.draw(st.one_of(st.none(), st.integers(1, 5)))
    size = 3000 * topology.num_ranks
    schedule = timed_bfb(topology, size, chunks, direction)
    verified_loads(schedule, topology)
    time = schedule_time(schedule, topology, size)
    limit = sum(divisible_times(demands_of(topology, direction)[1], Fraction(3000)))
    slowest = min(link.bandwidth for link in topology.links)
    chunk = Fraction(3, schedule.chunks_per_shard) / slowest
    assert limit <= time <= limit + chunk * schedule.num_steps
    if chunks is None:
        assert time <= schedule_time(timed_bfb(topology, size, 7, direction), topology, size)


def test_equal_latencies_change_no_share() -> None:
    """Each step then takes that latency and what it takes without."""
    network = torus(3, 4, bandwidth=25, latency=2)
    schedule = timed_bfb(network, 12 * 25_000, None)
    assert schedule_time(schedule, network, 12 * 25_000) == 3 * 2 + Fraction(11, 4)


def test_a_slow_link_is_left_out_only_where_it_costs_time() -> None:
    """Of two links into "d" one waits 100 µs: small shards come over the other alone, large ones over both."""
    ends = [("a", "b"), ("b", "a"), ("a", "c"), ("d", "a"), ("d", "b"), ("d", "c")]
    links: list[Any] = [("b", "d", 10, 100), ("c", "d", 10, 1), *((*pair, 40, 1) for pair in ends)]
    topology = Topology.from_links(links, compute="abcd")
    small, large = (plan_bfb(topology, "allgather", size=size, chunks=4) for size in (4000, "64M"))
    slow = topology.links.index(topology.link("b", "d"))
    assert small.link_loads[1, slow] == 0
    assert large.link_loads[1, slow] > 0
    assert small.options == {"chunks": 4, "size": 4000}


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: bfb_schedule(dgx_a100()), "has switches, such as 'box0/nvswitch'; expected direct links"),
        (lambda: timed_bfb(dgx_a100(), 1000, 1), "has switches"),
        (lambda: bfb_schedule("ring"), "the network is 'ring'; expected a Topology or a DirectGraph"),
        (lambda: bfb_cost(None), "the topology is None; expected a Topology"),
        (lambda: plan_bfb(None, "allgather"), "the topology is None; expected a Topology"),
        (lambda: plan_bfb(ring(4), "broadcast"), "does not implement the collective 'broadcast'; expected one of all"),
        (lambda: bfb_schedule(ring(4), chunks=2**21), "chunks is 2097152; expected a whole number from 1 to 1048576"),
        (lambda: plan_bfb(ring(4), "allgather", chunks=1.0), "chunks is 1.0; expected"),
        (lambda: plan_bfb(ring(4), "allgather", size="large"), "size 'large' is not understood"),
        (lambda: bfb_cost(ring(4), solver="fast"), "solver is 'fast'; expected one of auto, subsets, newton, lp"),
        (lambda: bfb_cost(one_way_pair(2)), "is not regular: 2 arcs leave node 0"),
        (lambda: bfb_schedule(ring(4), direction="up"), "direction is 'up'; expected 'broadcast' or 'reduce'"),
        (lambda: timed_bfb(complete(12), 1000, None), "11 links lead into a rank of complete-12"),
        (
            lambda: bfb_cost(DirectGraph.from_arcs(8193, [(node, (node + 1) % 8193) for node in range(8193)], "long")),
            "there are 8193 ranks in long; expected at most 8192",
        ),
    ],
)
def test_refuses_what_makes_no_sense(call: Callable[[], Any], message: str) -> None:
    """Each message names the value."""
    with pytest.raises(UnsupportedError, match=message):
        call()


def test_refuses_networks_that_are_too_far_apart_or_too_fine() -> None:
    """Ranks out of reach, and bandwidths beyond 64 bits."""
    one_way = Topology.from_links([("a", "b", 1)], compute="ab")
    for direction in ("broadcast", "reduce"):
        with pytest.raises(BoundError, match="there is no path from rank 'b' to rank 'a' in topology"):
            bfb_schedule(one_way, direction=direction)
    with pytest.raises(CapacityOverflowError):
        bfb_schedule(one_way_pair(10**9).derate("b", "c", "1/1000000000000"))
