"""Plans of fixed patterns: trees or steps that say which rank sends to which, and nothing about the network.

`plan_pattern` makes the plan of either; `forest_along` and `schedule_along` make trees and steps along given hops.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from ...errors import UnsupportedError
from ...formulations.allreduce_cuts import opposite_links
from ...schedules import Allreduce, Forest, Schedule, StepAllreduce, StepExchange, StepSchedule
from ...schedules.collective import EVERY_ROOT, AnyCollective, as_collective
from ...schedules.steps.expansions import DirectSends
from ...support.arrays import IntArray, distinct, joined_rows
from ...topologies import Topology
from ...topologies.network.direct_graph import partial_hop_distances
from ..bounds import bound_of_schedule
from ..plans.plan import Plan, proved_plan
from ..plans.stages import Trace
from ..trees.problem import TreeProblem, check_request, shard_weights, tree_problem
from .routes import Hops, LinkLoads, Route

MAX_RANKS = 2**13  # a schedule in steps has a send for each pair of ranks, of 40 bytes


def plan_pattern(
    topology: Topology,
    collective: AnyCollective,
    planner: str,
    build: Callable[[TreeProblem], Any],
    *,
    root: int | str | None = None,
    weights: Sequence[object] | None = None,
    options: Mapping[str, int | str] | None = None,
    join: Callable[[Any, Any], Schedule] = Allreduce,
    at_once: Callable[[TreeProblem], Schedule | None] = lambda _: None,
) -> Plan:
    """Plan a collective by what `build` returns for its only phase, or for both, which `join` joins.

    `build` makes the broadcasting phase on a network, whose links are turned around for one that reduces; `at_once` an
    allreduce in one phase, or None.
    """
    planned = check_request(topology, collective)
    shards = shard_weights(topology, planned, root, weights)
    *first, last = planned.phases
    trace = Trace()
    with trace.stage("schedule"):
        problem = tree_problem(topology, last, shards)
        schedule = at_once(problem) if first else None
        if schedule is None:
            schedule = build(problem)
            if first and opposite_links(topology) is not None:
                # Sums come in on the links that they go out on, turned around: as fast as any others of the kind.
                schedule = join(replace(schedule, direction="reduce"), schedule)
            elif first:
                schedule = join(build(tree_problem(topology, first[0], shards)), schedule)
    if not schedule.pipelined:
        trace.note("steps", schedule.num_steps)
    find = partial(bound_of_schedule, topology, planned, schedule)
    return proved_plan(topology, planned, schedule, planner, options or {}, trace, find)


def plan_in_steps(
    topology: Topology,
    collective: AnyCollective,
    planner: str,
    build: Callable[[TreeProblem], StepSchedule],
    options: Mapping[str, int | str] | None = None,
    at_once: Callable[[TreeProblem], StepExchange | None] = lambda _: None,
) -> Plan:
    """Plan an allgather in steps, its reverse as a reduce-scatter, or both, unless an allreduce can be done at once."""
    planned = as_collective(collective, EVERY_ROOT, f"{planner} does not implement")
    if topology.num_ranks > MAX_RANKS:
        raise UnsupportedError(f"{topology} has {topology.num_ranks} ranks; {planner} plans for up to {MAX_RANKS}")
    return plan_pattern(topology, planned, planner, build, options=options, join=StepAllreduce, at_once=at_once)


def forest_along(
    problem: TreeProblem,
    trees_per_root: int,
    roots: IntArray,
    weights: IntArray,
    hops: npt.NDArray[np.integer],
    routes: Sequence[Route],
) -> Forest:
    """Build a forest whose hops, shape (trees, ranks), follow given routes; `roots`, `weights` int64 (trees,)."""
    numbers = hops.astype(np.int32)
    numbers[np.arange(len(roots)), roots] = -1
    shards = np.zeros(problem.topology.num_ranks, dtype=np.int64)
    np.add.at(shards, roots, weights)
    rows = np.asarray(roots, dtype=np.int64), np.asarray(weights, dtype=np.int64), numbers
    paths, shards = joined_rows([route.nodes for route in routes]), shards // trees_per_root
    return Forest(len(shards), trees_per_root, *rows, *paths, shards, problem.direction)


def exchange_along(problem: TreeProblem, sends: DirectSends) -> StepExchange | None:
    """Make an allreduce that exchanges whole vectors, unless some ranks reach each other only past ranks."""
    if not problem.topology.switch_nodes and _relayed(problem, sends) is not sends:
        return None
    routed = schedule_along(problem, 1, sends)
    columns = (routed.steps, np.ones(routed.num_sends, dtype=np.bool_), routed.lower, routed.upper, routed.routes)
    return StepExchange(problem.topology.num_ranks, 1, *columns, routed.path_starts, routed.path_nodes)


def schedule_along(
    problem: TreeProblem, chunks: int, sends: DirectSends, paths: tuple[IntArray, list[IntArray]] | None = None
) -> StepSchedule:
    """Make a schedule of sends by given paths, numbers and nodes, or by the best routes, or past ranks."""
    if paths is None and not problem.topology.switch_nodes:
        sends = _relayed(problem, sends)
    numbers, nodes = _best_paths(problem, sends) if paths is None else paths
    steps = distinct(sends.steps)[1]  # without gaps
    starts, path_nodes = np.cumsum([0, *map(len, nodes)], dtype=np.int64), np.concatenate(nodes).astype(np.int64)
    columns = (*sends[1:4], numbers, starts, path_nodes)
    return StepSchedule(problem.topology.num_ranks, chunks, steps, *columns, problem.direction)


def _best_paths(problem: TreeProblem, sends: DirectSends) -> tuple[IntArray, list[IntArray]]:
    """Number the path of each send, and list the paths, which in each step share out the routes evenly."""
    count = problem.topology.num_ranks
    hops, numbers = distinct((sends.steps * count + sends.tails) * count + sends.heads)
    amounts = np.bincount(numbers, weights=sends.upper - sends.lower).astype(np.int64)
    steps, pairs = np.divmod(hops, count * count)
    hop_table, routes = Hops(problem), dict[int, tuple[Route, ...]]()
    for pair in np.unique(pairs).tolist():
        routes[pair] = hop_table.find_routes(*divmod(pair, count))
    paths = list[IntArray]()
    bounds = np.searchsorted(steps, np.arange(int(steps.max()) + 2)).tolist()
    for begin, end in pairwise(bounds):
        loads = LinkLoads(problem.capacities)
        for pair, amount in zip(pairs[begin:end].tolist(), amounts[begin:end].tolist(), strict=True):
            paths.append(np.array(loads.take(routes[pair], amount).nodes, dtype=np.int64))
    return numbers, paths


def _relayed(problem: TreeProblem, sends: DirectSends) -> DirectSends:
    """Replace the sends of whole shards, on a network without switches, by sends over its links.

    The ranks on a shortest path pass them on and keep them; a step takes as many steps as its longest path has links.
    What a rank has kept is not sent to it again, so that every shard comes to every rank once.
    """
    count = problem.topology.num_ranks
    pairs, numbers = distinct(sends.tails * count + sends.heads)
    paths = _shortest_paths(problem, *np.divmod(pairs, count))
    if paths.shape[1] == 2:
        return sends
    holdings = np.eye(count, dtype=np.bool_)  # by rank and source
    relayed, start = list[DirectSends](), 0
    for step in range(int(sends.steps.max()) + 1):
        now = np.flatnonzero(sends.steps == step)
        ways, sources = paths[numbers[now]], sends.sources[now]
        for hop in range(paths.shape[1] - 1):
            tails, heads = ways[:, hop], ways[:, hop + 1]
            fresh = np.flatnonzero((tails != heads) & ~holdings[heads, sources])
            fresh = fresh[np.unique(heads[fresh] * count + sources[fresh], return_index=True)[1]]
            heads, senders, shards = heads[fresh], tails[fresh], sources[fresh]
            holdings[heads, shards] = True
            zeros = np.zeros_like(heads)
            relayed.append(DirectSends(zeros + start + hop, shards, zeros, zeros + 1, senders, heads))
        start += paths.shape[1]
    return DirectSends.joined(relayed)


def _shortest_paths(problem: TreeProblem, tails: IntArray, heads: IntArray) -> IntArray:
    """Ranks on a shortest path of each pair, the last one repeated; shapes: int64 (pairs,), int64 (pairs, ranks)."""
    count = problem.topology.num_ranks
    distances = partial_hop_distances(count, problem.tails, problem.heads)
    order = np.argsort(problem.tails, kind="stable")
    degrees = np.bincount(problem.tails, minlength=count)
    neighbors = np.full((count, int(degrees.max())), -1)
    places = np.arange(len(order)) - np.repeat(np.cumsum(degrees) - degrees, degrees)
    neighbors[problem.tails[order], places] = problem.heads[order]
    passed = [tails]
    for _ in range(int(distances[tails, heads].max())):
        current = passed[-1].copy()
        far = np.flatnonzero(distances[current, heads] > 1)
        following = heads.copy()
        if len(far):
            nodes, ends = current[far], heads[far]
            near = neighbors[nodes]
            good = (near >= 0) & (distances[near, ends[:, None]] == distances[nodes, ends][:, None] - 1)
            choice = (nodes + ends) % good.sum(axis=1)
            following[far] = near[np.arange(len(far)), np.argmax(np.cumsum(good, axis=1) > choice[:, None], axis=1)]
        passed.append(following)
    return np.stack(passed, axis=1)
