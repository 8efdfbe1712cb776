"""Exchanges along the dimensions of a torus, in several collectives at once: Swing, Bine trees, Trivance, buckets.

Each collective begins with another dimension and has an equal part of the data, so that all ports are busy; see
docs/explanation/algorithms.md for what they take.  The steps are those of an allgather, in reverse order those of a
reduce-scatter.  In each of them every rank sends one message along one dimension: all that the receiver does not have
yet.  Where ranks are linked themselves, the ranks in between pass a message on, one link in each step, and keep what
they did not have: so every part of a shard comes to every rank once.

- *Swing* (De Sensi, Bonato, Saam and Hoefler, NSDI 2024, arXiv 2401.09356): in step s of a reduce-scatter in a ring,
  rank r exchanges with rank r + rho(s) if r is even, and r - rho(s) if it is odd, where ``rho(s) = 1 - 2 + 4 - ... = (1
  - (-2)^(s+1)) / 3``.  Of the 2D collectives on a torus of D dimensions D are mirrored.
- *Bine trees* (De Sensi et al., SC 2025, arXiv 2508.17311): the trees that the shards of these exchanges follow.
- *Trivance* (Jürß, Addanki and Schmid, 2026, arXiv 2602.17254): in step j of a reduce-scatter, a rank exchanges with
  the ranks at distance ``3^j`` on both sides: k = ``ceil(log3 n)`` steps on n ranks.  The last distance is ``ceil((n -
  3^(k-1)) / 2)``, which reaches all ranks if n is no power of three; what both sides could bring then comes from each
  by half.
- The *bucket algorithm* (Jain and Sabharwal, ICS 2010; Sack and Gropp, PPoPP 2012): an allgather runs along the rings
  of the first dimension, then along those of the second with what these collected, and so on, in 2D collectives, each
  way round.
"""

from collections.abc import Iterator, Sequence
from itertools import product
from typing import NamedTuple

import numpy as np

from ...errors import UnsupportedError
from ...schedules import TREE_COLLECTIVES, Forest, StepSchedule
from ...schedules.collective import EVERY_ROOT, AnyCollective, as_collective
from ...schedules.steps.expansions import DirectSends
from ...support.arrays import BoolArray, IntArray
from ...topologies import Topology
from ..plans.plan import Plan
from ..plans.registry import register_planner
from ..trees.problem import TreeProblem
from .fixed_pattern import plan_baseline
from .step_plans import plan_in_steps, schedule_along
from .torus_shapes import Torus, grid_of, needed_torus


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


def spread(
    torus: Torus, patterns: Sequence[Pattern], relays: bool, roots: IntArray | None = None
) -> tuple[int, DirectSends]:
    """Return chunks per shard and sends of an allgather by several patterns at once, each for a part of every shard.

    Raises `UnsupportedError` if they do not bring all shards to all ranks.  The patterns have equally many steps, and
    wait for the longest distance of a step; with `relays`, ranks in between pass messages on.  Only the shards of
    `roots`, int64, are spread; all by default.
    """
    shards = np.arange(len(torus.ranks)) if roots is None else roots
    width = max(len(moves) for pattern in patterns for moves in pattern)
    spans = [max(move.distance for moves in step for move in moves) for step in zip(*patterns, strict=True)]
    starts = np.cumsum([0, *spans]).tolist()
    sends = list[DirectSends]()
    for number, pattern in enumerate(patterns):
        holdings = np.zeros((len(torus.ranks), len(shards)), dtype=np.bool_)
        holdings[shards, np.arange(len(shards))] = True
        for start, moves in zip(starts, pattern, strict=False):
            for step, messages in enumerate(_hops(torus, holdings, moves, relays), start):
                sends += _sends(messages, step, shards, number * width, width)
                for message in messages:
                    holdings |= message.brought
        if not holdings.all():
            raise UnsupportedError(f"the steps of this pattern do not reach all ranks of a torus of {torus.label}")
    return _coarsest(len(patterns) * width, DirectSends.joined(sends))


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
                numbers = (np.full(len(heads), value, dtype=np.int64) for value in (step, lower, upper))
                steps, lowers, uppers = numbers
                yield DirectSends(steps, shards[sources], lowers, uppers, message.tails[heads], heads)


def _coarsest(chunks: int, sends: DirectSends) -> tuple[int, DirectSends]:
    """Count in chunks as large as possible."""
    unit = int(np.gcd.reduce(np.concatenate([[chunks], sends.lower, sends.upper])))
    return chunks // unit, sends._replace(lower=sends.lower // unit, upper=sends.upper // unit)


@register_planner("swing", EVERY_ROOT)
def plan_swing(topology: Topology, collective: AnyCollective) -> Plan:
    """Plan exchanges at distances 1, 1, 3, 5, ..., on tori with all ports (Swing).

    A torus has even sizes; switches join evenly many ranks, which have one port.

    Where ranks are linked themselves and pass messages on, there is one step for each link that these pass.
    """
    return plan_in_steps(topology, collective, "swing", lambda problem: _swinging(problem, "swing"))


@register_planner("bine", TREE_COLLECTIVES)
def plan_bine(topology: Topology, collective: AnyCollective, *, root: int | str | None = None) -> Plan:
    """Plan exchanges at Swing's distances in trees and butterflies (Bine trees)."""
    planned = as_collective(collective)
    if planned.has_one_root or root is not None:
        return plan_baseline(topology, planned, "bine", _trees, root=root)
    return plan_in_steps(topology, planned, "bine", lambda problem: _swinging(problem, "bine"))


@register_planner("trivance", EVERY_ROOT)
def plan_trivance(topology: Topology, collective: AnyCollective) -> Plan:
    """Plan exchanges with both sides at distances 1, 3, 9, ..., on tori (Trivance).

    A torus may have routers; ranks that switches join are one ring.

    Steps are as for `plan_swing`.
    """

    def build(problem: TreeProblem) -> StepSchedule:
        torus = grid_of(problem.topology, "trivance")
        return _exchanges(problem, torus, [_both_sides_pattern(torus, axis) for axis in range(len(torus.shape))])

    return plan_in_steps(topology, collective, "trivance", build)


@register_planner("torus-2-phase", EVERY_ROOT)
def plan_torus_phases(topology: Topology, collective: AnyCollective) -> Plan:
    """Plan rings along one dimension of a torus after the other (bucket algorithm)."""

    def build(problem: TreeProblem) -> StepSchedule:
        torus = needed_torus(problem.topology, "torus-2-phase")
        ways = product(range(len(torus.shape)), (1, -1))
        return _exchanges(problem, torus, [_ring_pattern(torus, axis, side) for axis, side in ways])

    return plan_in_steps(topology, collective, "torus-2-phase", build)


def _swinging(problem: TreeProblem, planner: str) -> StepSchedule:
    torus = grid_of(problem.topology, planner)
    return _exchanges(problem, torus, _swing_patterns(torus, problem.topology, planner))


def _exchanges(
    problem: TreeProblem, torus: Torus, patterns: Sequence[Pattern], roots: IntArray | None = None
) -> StepSchedule:
    chunks, sends = spread(torus, patterns, not problem.topology.switch_nodes, roots)
    return schedule_along(problem, chunks, sends, torus)


def _trees(problem: TreeProblem) -> Forest:
    """One tree for each collective: who brings the root's shard to whom."""
    torus, roots = grid_of(problem.topology, "bine"), np.flatnonzero(problem.root_weights)
    schedule = _exchanges(problem, torus, _swing_patterns(torus, problem.topology, "bine"), roots)
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


def _swing_patterns(torus: Torus, topology: Topology, planner: str) -> list[Pattern]:
    """The exchanges of an allgather: of twice as many collectives as dimensions on a torus, of one elsewhere.

    Where all sizes are 2, mirror images would be the same.
    """
    if any(size % 2 for size in torus.shape):
        raise UnsupportedError(
            f"{planner} pairs even ranks with odd ones; expected an even size of each dimension, not {torus.label} of "
            f"{topology}"
        )
    is_torus = torus.routers is not None or not topology.switch_nodes
    sides = (False, True) if max(torus.shape) > 2 else (False,)
    ports = list(product(sides, range(len(torus.shape)))) if is_torus else [(False, 0)]
    counts = [(size - 1).bit_length() for size in torus.shape]
    return [
        [[_swing(torus, axis, step, mirrored)] for axis, step in _rounds(torus, first, counts)]
        for mirrored, first in ports
    ]


def _swing(torus: Torus, axis: int, step: int, mirrored: bool) -> Move:
    """Step `step` of a reduce-scatter along a dimension, over at most half of its links."""
    size = torus.shape[axis]
    way = (1 - (-2) ** (step + 1)) // 3
    shorter = (way + size // 2) % size - size // 2
    sign = (1 if shorter > 0 else -1) * (-1 if mirrored else 1)
    return Move(axis, abs(shorter), np.where(torus.places[:, axis] % 2, -sign, sign))


def _both_sides_pattern(torus: Torus, first: int) -> Pattern:
    distances = [_distances(size) for size in torus.shape]
    ahead = np.ones(len(torus.ranks), dtype=np.int64)
    return [
        [Move(axis, distances[axis][step], ahead * side) for side in ((1, -1) if torus.shape[axis] > 2 else (1,))]
        for axis, step in _rounds(torus, first, [len(row) for row in distances])
    ]


def _distances(size: int) -> list[int]:
    """Distances of a reduce-scatter on a ring by Trivance."""
    distances = [1]
    while 3 ** len(distances) < size:
        distances.append(3 ** len(distances))
    distances[-1] = -((distances[-1] - size) // 2)
    return distances


def _ring_pattern(torus: Torus, first: int, side: int) -> Pattern:
    """The steps of one collective of buckets: all those of a dimension, then those of the next."""
    signs = np.full(len(torus.ranks), side)
    return [[Move(axis, 1, signs)] for axis in _turns(torus, first) for _ in range(torus.shape[axis] - 1)]
