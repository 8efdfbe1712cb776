"""Exchanges along the dimensions of a torus, in several collectives at once: Swing, Bine trees, Trivance, buckets.

Each collective begins with another dimension and has an equal part of the data, so that all ports are busy.  Sources,
steps and costs are in docs/explanation/algorithms.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from math import prod
from typing import NamedTuple

import numpy as np

from ...errors import NoAnswerError, UnsupportedError
from ...schedules import TREE_COLLECTIVES, Forest, StepSchedule
from ...schedules.collective import EVERY_ROOT, AnyCollective, as_collective
from ...schedules.steps.expansions import DirectSends
from ...support.arrays import BoolArray, IntArray, distances_from, distinct
from ...topologies import DirectGraph, Topology
from ...topologies.symmetry.isomorphism import isomorphism
from ..plans.plan import Plan
from ..plans.registry import register_planner
from ..trees.problem import TreeProblem
from .fixed_pattern import plan_in_steps, plan_pattern, schedule_along

MAX_RENUMBERED = 2**12  # ranks up to which a torus is recognized whatever the order of its ranks


class Torus(NamedTuple):
    """Ranks by their coordinates.

    Shapes: `places` int64 (ranks, dimensions); `ranks` int64 (ranks,), the rank at each place, the last coordinate
    fastest; `routers` int64 (ranks,), the switch at each rank, None where ranks are linked themselves.
    """

    shape: tuple[int, ...]
    places: IntArray
    ranks: IntArray
    routers: IntArray | None

    def moved(self, axis: int, amounts: IntArray | int) -> IntArray:
        """Return the rank that is so far from each rank along a dimension. Shapes: `amounts` int64 (ranks,)."""
        there = self.places.copy()
        there[:, axis] += amounts
        ranks: IntArray = self.ranks[np.ravel_multi_index(tuple(there.T), self.shape, mode="wrap")]
        return ranks

    @classmethod
    def in_order(cls, shape: Sequence[int], routers: IntArray | None = None) -> Torus:
        """Make the torus whose ranks count the last coordinate fastest."""
        numbers = np.arange(prod(shape))
        places = np.stack(np.unravel_index(numbers, tuple(shape)), axis=1).astype(np.int64)
        return cls(tuple(shape), places, numbers, routers)


def find_torus(topology: Topology) -> Torus | None:
    """Find the coordinates of all ranks, by their order where there are several; None if the network is no torus."""
    between = _arcs_between_ranks(topology)
    if between is None:
        return None
    tails, heads, routers = between
    count = topology.num_ranks
    arcs = np.unique(tails * count + heads)
    degrees = np.bincount(tails, minlength=count)
    if not np.array_equal(arcs, np.unique(heads * count + tails)) or (degrees != degrees[0]).any():
        return None
    shapes = list(_shapes(count, int(degrees[0])))
    for shape in shapes:
        if np.array_equal(arcs, _arcs_of(Torus.in_order(shape))):
            return Torus.in_order(shape, routers)
    if count > MAX_RENUMBERED:
        return None
    profile = np.bincount(distances_from(0, count, tails, heads))
    for shape in shapes:
        places = Torus.in_order(shape).places
        expected = np.bincount(np.minimum(places, np.array(shape) - places).sum(axis=1))
        if np.array_equal(expected, profile) and (torus := _renumbered(tails, heads, shape, routers)):
            return torus
    return None


def _torus_of(topology: Topology, planner: str) -> Torus:
    """Return what `find_torus` does, or raise `UnsupportedError`."""
    if (torus := find_torus(topology)) is None:
        raise UnsupportedError(
            f"{topology} is no torus with links both ways between its ranks or routers; {planner} needs one"
        )
    return torus


def _grid_of(topology: Topology, planner: str) -> Torus:
    """Return the torus, or, where switches join the ranks, one dimension of all of them in order."""
    if topology.switch_nodes:
        return find_torus(topology) or Torus.in_order((topology.num_ranks,))
    return _torus_of(topology, planner)


def _arcs_between_ranks(topology: Topology) -> tuple[IntArray, IntArray, IntArray | None] | None:
    """Links between ranks, or between routers that belong to one rank each; None for other networks."""
    tails, heads = topology.arrays.tails, topology.arrays.heads
    count = topology.num_ranks
    if not topology.switch_nodes:
        return tails, heads, None
    if len(topology.switch_nodes) != count:
        return None
    up = (tails < count) & (heads >= count)
    down = (tails >= count) & (heads < count)
    if up.sum() != count or down.sum() != count or ((tails < count) & (heads < count)).any():
        return None
    routers, owners = np.full(count, -1), np.full(count, -1)
    routers[tails[up]] = heads[up]
    owners[tails[down] - count] = heads[down]
    if (routers < 0).any() or (owners[routers - count] != np.arange(count)).any():
        return None
    between = ~up & ~down
    return owners[tails[between] - count], owners[heads[between] - count], routers


def _shapes(count: int, degree: int) -> Iterator[tuple[int, ...]]:
    """Yield the shapes of this size in which a rank has so many neighbors, those of fewest dimensions first."""

    def shapes_of(dimensions: int, size: int) -> Iterator[tuple[int, ...]]:
        if dimensions == 1:
            yield (size,)
            return
        for first in range(2, size // 2 ** (dimensions - 1) + 1):
            if size % first == 0:
                yield from ((first, *sizes) for sizes in shapes_of(dimensions - 1, size // first))

    for dimensions in range(1, degree + 1):
        for shape in shapes_of(dimensions, count):
            if sum(min(size, 3) - 1 for size in shape) == degree:
                yield shape


def _arcs_of(torus: Torus) -> IntArray:
    """Sorted ``tail * ranks + head`` of all arcs."""
    count = len(torus.ranks)
    heads = [torus.moved(axis, side) for axis, side in product(range(len(torus.shape)), (1, -1))]
    return np.unique(np.tile(np.arange(count) * count, len(heads)) + np.concatenate(heads))


def _renumbered(tails: IntArray, heads: IntArray, shape: tuple[int, ...], routers: IntArray | None) -> Torus | None:
    """Match the links with those of a torus whose ranks are in another order."""
    plain = Torus.in_order(shape)
    count = len(plain.ranks)
    graphs = (
        DirectGraph.from_arcs(count, np.stack(ends, axis=1).tolist(), name)
        for ends, name in (((tails, heads), "network"), (np.divmod(_arcs_of(plain), count), "torus"))
    )
    try:
        numbers = isomorphism(*graphs)
    except NoAnswerError:
        return None
    return None if numbers is None else Torus(shape, plain.places[numbers], np.argsort(numbers), routers)


class Move(NamedTuple):
    """One message of every rank, along a dimension; the receivers are all different."""

    axis: int
    distance: int
    signs: IntArray  # int64 (ranks,): the direction of each rank's message, 1 or -1


Pattern = Sequence[Sequence[Move]]
"""One or two moves for each step; of two, each brings half of what both could bring."""


class _Message(NamedTuple):
    """What ranks get in one step, bool (ranks, shards), and from which, int64 (ranks,), both by receiving rank."""

    brought: BoolArray
    tails: IntArray


def _exchanges(
    problem: TreeProblem, torus: Torus, patterns: Sequence[Pattern], roots: IntArray | None = None
) -> StepSchedule:
    """Make an allgather by several patterns at once, each for a part of every shard; of the shards of `roots` alone.

    The patterns have equally many steps, and wait for the longest distance of a step; ranks that are linked themselves
    pass messages on.
    """
    shards = np.arange(len(torus.ranks)) if roots is None else roots
    relays = not problem.topology.switch_nodes
    width = max(len(moves) for pattern in patterns for moves in pattern)
    spans = [max(move.distance for moves in step for move in moves) for step in zip(*patterns, strict=True)]
    starts = np.cumsum([0, *spans]).tolist()
    parts = list[DirectSends]()
    for number, pattern in enumerate(patterns):
        holdings = np.zeros((len(torus.ranks), len(shards)), dtype=np.bool_)
        holdings[shards, np.arange(len(shards))] = True
        for start, moves in zip(starts, pattern, strict=False):
            for step, messages in enumerate(_hops(torus, holdings, moves, relays), start):
                parts += _sends(messages, step, shards, number * width, width)
                for message in messages:
                    holdings |= message.brought
        assert holdings.all()  # each pattern reaches all ranks
    # Count in chunks as large as possible.
    chunks, sends = len(patterns) * width, DirectSends.joined(parts)
    unit = int(np.gcd.reduce(np.concatenate([[chunks], sends.lower, sends.upper])))
    sends = sends._replace(lower=sends.lower // unit, upper=sends.upper // unit)
    paths = _torus_paths(torus, sends) if relays or torus.routers is not None else None
    return schedule_along(problem, chunks // unit, sends, paths)


def _hops(torus: Torus, holdings: BoolArray, moves: Sequence[Move], relays: bool) -> Iterator[list[_Message]]:
    """Yield the messages of a step, or of one step for each link that they pass; `holdings` grows in between."""
    contents = [holdings & ~holdings[torus.moved(move.axis, move.signs * move.distance)] for move in moves]
    for hop in range(max(move.distance for move in moves) if relays else 1):
        messages = list[_Message]()
        for move, content in zip(moves, contents, strict=True):
            before, after = (hop, hop + 1) if relays else (0, move.distance)
            if after <= move.distance:
                tails, heads = (torus.moved(move.axis, move.signs * amount) for amount in (before, after))
                brought, senders = np.zeros_like(holdings), np.empty_like(tails)
                brought[heads] = content & ~holdings[heads]
                senders[heads] = tails
                messages.append(_Message(brought, senders))
        yield messages


def _sends(messages: Sequence[_Message], step: int, shards: IntArray, first: int, width: int) -> Iterator[DirectSends]:
    """Turn messages into sends of chunks `first` to ``first + width - 1``."""
    both = messages[0].brought & messages[-1].brought if len(messages) > 1 else None
    for number, message in enumerate(messages):
        parts = [(message.brought, first, first + width)]
        if both is not None:
            parts = [(message.brought & ~both, first, first + width), (both, first + number, first + number + 1)]
        for brought, lower, upper in parts:
            heads, sources = np.nonzero(brought)
            if len(heads):
                steps, lowers, uppers = (np.full_like(heads, value) for value in (step, lower, upper))
                yield DirectSends(steps, shards[sources], lowers, uppers, message.tails[heads], heads)


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
        axis = int(np.flatnonzero(way)[0])
        amounts = np.arange(abs(way[axis]) + 1) * np.sign(way[axis])
        passed = np.stack([torus.moved(axis, amount)[tails[pairs_one_way]] for amount in amounts], axis=1)
        if torus.routers is not None:
            passed = np.column_stack([passed[:, 0], torus.routers[passed], passed[:, -1]])
        for pair, nodes in zip(pairs_one_way.tolist(), passed, strict=True):
            paths[pair] = nodes
    return numbers, paths


@register_planner("swing", EVERY_ROOT)
def plan_swing(topology: Topology, collective: AnyCollective) -> Plan:
    """Plan exchanges at distances 1, 1, 3, 5, ..., on tori with all ports (Swing)."""
    return plan_in_steps(topology, collective, "swing", lambda problem: _swinging(problem, "swing"))


@register_planner("bine", TREE_COLLECTIVES)
def plan_bine(topology: Topology, collective: AnyCollective, *, root: int | str | None = None) -> Plan:
    """Plan exchanges at Swing's distances in trees and butterflies (Bine trees)."""
    planned = as_collective(collective)
    if planned.has_one_root or root is not None:
        return plan_pattern(topology, planned, "bine", _bine_trees, root=root)
    return plan_in_steps(topology, planned, "bine", lambda problem: _swinging(problem, "bine"))


@register_planner("trivance", EVERY_ROOT)
def plan_trivance(topology: Topology, collective: AnyCollective) -> Plan:
    """Plan exchanges with both sides at distances 1, 3, 9, ..., on tori (Trivance)."""

    def build(problem: TreeProblem) -> StepSchedule:
        torus = _grid_of(problem.topology, "trivance")
        return _exchanges(problem, torus, [_both_sides_pattern(torus, axis) for axis in range(len(torus.shape))])

    return plan_in_steps(topology, collective, "trivance", build)


@register_planner("torus-2-phase", EVERY_ROOT)
def plan_torus_phases(topology: Topology, collective: AnyCollective) -> Plan:
    """Plan rings along one dimension of a torus after the other (bucket algorithm)."""

    def build(problem: TreeProblem) -> StepSchedule:
        torus = _torus_of(problem.topology, "torus-2-phase")
        ways = product(range(len(torus.shape)), (1, -1))
        return _exchanges(problem, torus, [_ring_pattern(torus, axis, side) for axis, side in ways])

    return plan_in_steps(topology, collective, "torus-2-phase", build)


def _bine_trees(problem: TreeProblem) -> Forest:
    """One tree for each collective: who brings the root's shard to whom."""
    roots = np.flatnonzero(problem.root_weights)
    schedule = _swinging(problem, "bine", roots)
    paths = [list[tuple[int, ...]]() for _ in range(schedule.chunks_per_shard)]
    for send in schedule.sends():
        paths[send.lower].append(send.path)
    return Forest.from_paths(
        problem.topology.num_ranks,
        len(paths),
        [(int(roots[0]), 1, tree) for tree in paths],
        root_weights=problem.root_weights.tolist(),
        direction=problem.direction,
    )


def _turns(torus: Torus, first: int) -> list[int]:
    """The dimensions in the order of a collective that begins with `first`."""
    return [(axis + first) % len(torus.shape) for axis in range(len(torus.shape))]


def _rounds(torus: Torus, first: int, counts: Sequence[int]) -> list[tuple[int, int]]:
    """Dimension and step of each exchange of an allgather, the dimensions in turn, until each is through `counts`."""
    turns = _turns(torus, first)
    return [(axis, step) for step in range(max(counts)) for axis in turns if step < counts[axis]][::-1]


def _swinging(problem: TreeProblem, planner: str, roots: IntArray | None = None) -> StepSchedule:
    """Swing's allgather: on a torus of twice as many collectives as dimensions, half of them mirrored."""
    topology, torus = problem.topology, _grid_of(problem.topology, planner)
    if any(size % 2 for size in torus.shape):
        label = "x".join(map(str, torus.shape))
        raise UnsupportedError(
            f"{planner} pairs even ranks with odd ones; expected even sizes, not {label} of {topology}"
        )
    is_torus = torus.routers is not None or not topology.switch_nodes
    sides = (False, True) if max(torus.shape) > 2 else (False,)
    ports = list(product(sides, range(len(torus.shape)))) if is_torus else [(False, 0)]
    counts = [(size - 1).bit_length() for size in torus.shape]
    patterns = [
        [[_swing(torus, axis, step, mirrored)] for axis, step in _rounds(torus, first, counts)]
        for mirrored, first in ports
    ]
    return _exchanges(problem, torus, patterns, roots)


def _swing(torus: Torus, axis: int, step: int, mirrored: bool) -> Move:
    """Step `step` of a reduce-scatter along a dimension, over at most half of its links."""
    size = torus.shape[axis]
    way = (1 - (-2) ** (step + 1)) // 3
    shorter = (way + size // 2) % size - size // 2
    sign = (1 if shorter > 0 else -1) * (-1 if mirrored else 1)
    return Move(axis, abs(shorter), np.where(torus.places[:, axis] % 2, -sign, sign))


def _both_sides_pattern(torus: Torus, first: int) -> Pattern:
    """Trivance: exchanges with the ranks on both sides of a dimension."""
    distances = [_distances(size) for size in torus.shape]
    ahead = np.ones(len(torus.ranks), dtype=np.int64)
    return [
        [Move(axis, distances[axis][step], ahead * side) for side in ((1, -1) if torus.shape[axis] > 2 else (1,))]
        for axis, step in _rounds(torus, first, [len(row) for row in distances])
    ]


def _distances(size: int) -> list[int]:
    """Distances of a reduce-scatter on a ring by Trivance, of which the last reaches all ranks."""
    distances = [1]
    while 3 ** len(distances) < size:
        distances.append(3 ** len(distances))
    distances[-1] = -((distances[-1] - size) // 2)
    return distances


def _ring_pattern(torus: Torus, first: int, side: int) -> Pattern:
    """The steps of one collective of buckets: all those of a dimension, then those of the next."""
    signs = np.full(len(torus.ranks), side)
    return [[Move(axis, 1, signs)] for axis in _turns(torus, first) for _ in range(torus.shape[axis] - 1)]
