"""Plans of schedules in steps that a pattern lays down, with routes of their sends."""

from collections.abc import Callable, Mapping
from functools import partial
from itertools import pairwise

import numpy as np

from ...errors import UnsupportedError
from ...schedules import StepAllreduce, StepExchange, StepSchedule
from ...schedules.collective import EVERY_ROOT, AnyCollective, as_collective
from ...schedules.steps.expansions import DirectSends
from ...support.arrays import IntArray, distinct
from ...topologies import Topology
from ...topologies.network.direct_graph import partial_hop_distances
from ..bounds import bound_of_schedule
from ..plans.plan import Plan, proved_plan
from ..plans.stages import Trace
from ..trees.problem import TreeProblem, check_request, tree_problem
from .fixed_pattern import Hops, LinkLoads, Route, in_phases
from .torus_shapes import Torus

MAX_RANKS = 2**13  # a schedule has a send for each pair of ranks, of 40 bytes

Build = Callable[[TreeProblem], StepSchedule]
"""Makes the allgather on a network, which for a reduce-scatter has its links turned around."""


def plan_in_steps(
    topology: Topology,
    collective: AnyCollective,
    planner: str,
    build: Build,
    options: Mapping[str, int | str] | None = None,
    at_once: Callable[[TreeProblem], StepExchange | None] = lambda _: None,
) -> Plan:
    """Plan an allgather, its reverse as a reduce-scatter, or both as an allreduce, unless that can be done at once."""
    check_request(topology, collective)
    planned = as_collective(collective, EVERY_ROOT, f"{planner} does not implement")
    if topology.num_ranks > MAX_RANKS:
        raise UnsupportedError(f"{topology} has {topology.num_ranks} ranks; {planner} plans for up to {MAX_RANKS}")
    trace = Trace()
    with trace.stage("steps"):
        exchange = at_once(tree_problem(topology, "broadcast", ())) if planned.has_two_phases else None
        schedule = exchange or in_phases(topology, planned, (), build, StepAllreduce)
    trace.note("steps", schedule.num_steps)
    find = partial(bound_of_schedule, topology, planned, schedule)
    return proved_plan(topology, planned, schedule, planner, dict(options or {}), trace, find)


def exchange_along(problem: TreeProblem, sends: DirectSends) -> StepExchange | None:
    """Make an allreduce that exchanges whole vectors, unless some ranks reach each other only past ranks."""
    if not problem.topology.switch_nodes and _relayed(problem, sends) is not sends:
        return None
    routed = schedule_along(problem, 1, sends)
    columns = (routed.steps, np.ones(routed.num_sends, dtype=np.bool_), routed.lower, routed.upper, routed.routes)
    return StepExchange(problem.topology.num_ranks, 1, *columns, routed.path_starts, routed.path_nodes)


def schedule_along(problem: TreeProblem, chunks: int, sends: DirectSends, torus: Torus | None = None) -> StepSchedule:
    """Make a schedule of sends from rank to rank, along the links of a torus or the best routes through switches.

    On other networks of links, ranks pass whole shards on.
    """
    if torus is None and not problem.topology.switch_nodes:
        sends = _relayed(problem, sends)
    if torus is None or (torus.routers is None and problem.topology.switch_nodes):
        numbers, paths = _best_paths(problem, sends)
    else:
        numbers, paths = _torus_paths(torus, sends)
    steps = distinct(sends.steps)[1]  # without gaps
    starts, nodes = np.cumsum([0, *map(len, paths)], dtype=np.int64), np.concatenate(paths).astype(np.int64)
    columns = (*sends[1:4], numbers, starts, nodes)
    return StepSchedule(problem.topology.num_ranks, chunks, steps, *columns, problem.direction)


def _torus_paths(torus: Torus, sends: DirectSends) -> tuple[IntArray, list[IntArray]]:
    """Number the path of each send along its dimension, the shorter way, and list the paths."""
    count = len(torus.ranks)
    pairs, numbers = distinct(sends.tails * count + sends.heads)
    tails, heads = np.divmod(pairs, count)
    sizes = np.array(torus.shape)
    ways = (torus.places[heads] - torus.places[tails] + sizes // 2) % sizes - sizes // 2
    paths: list[IntArray] = [np.empty(0, dtype=np.int64)] * len(pairs)
    for way in np.unique(ways, axis=0):
        pairs_one_way = np.flatnonzero((ways == way).all(axis=1))
        for pair, nodes in zip(pairs_one_way.tolist(), _straight(torus, way, tails[pairs_one_way]), strict=True):
            paths[pair] = nodes
    return numbers, paths


def _straight(torus: Torus, way: IntArray, tails: IntArray) -> IntArray:
    """Nodes of the paths from some ranks that go the same way. Shapes: returns int64 (tails, nodes)."""
    axis = int(np.flatnonzero(way)[0])
    amounts = np.arange(abs(way[axis]) + 1) * np.sign(way[axis])
    passed = np.stack([torus.moved(axis, np.full(len(torus.ranks), amount))[tails] for amount in amounts], axis=1)
    if torus.routers is None:
        return passed
    return np.column_stack([passed[:, 0], torus.routers[passed], passed[:, -1]])


def _best_paths(problem: TreeProblem, sends: DirectSends) -> tuple[IntArray, list[IntArray]]:
    """Number the path of each send, and list the paths, which in each step share out the routes evenly."""
    count = problem.topology.num_ranks
    keys = (sends.steps * count + sends.tails) * count + sends.heads
    hops, numbers = distinct(keys)
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
