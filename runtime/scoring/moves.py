"""Schedules from moves of single chunks: trees where the moves of each chunk form one, else sums in steps, or paths."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from math import gcd
from typing import NamedTuple

import numpy as np

from ...errors import UnsupportedError
from ...schedules import Allreduce, Collective, FlowSchedule, Forest, Schedule, StepExchange
from ...schedules.collective import Direction
from ...support.arrays import IntArray
from ...support.formatting import abbreviated_names
from ...topologies import Topology

Path = tuple[int, ...]
Tree = tuple[int, frozenset[Path]]
"""Root and paths, as those of a forest are: from the root outwards."""


class Move(NamedTuple):
    """Chunk `chunk`, a sum of the data of `parts`, passes the nodes of `path` in `step`."""

    chunk: int
    parts: frozenset[int]  # Ranks; one where data is not added up; empty where the file's check has seen to them
    step: int
    path: Path


def schedule_of_moves(
    moves: Iterable[Move], collective: Collective, topology: Topology, chunks: int, root: int | None = None
) -> Schedule:
    """Make a schedule that carries out all moves of `chunks` chunks, and no others; it is not verified.

    Raises `UnsupportedError` where no plan can say what the moves do.
    """
    by_chunk: defaultdict[int, list[Move]] = defaultdict(list)
    for move in moves:
        by_chunk[move.chunk].append(move)
    if collective.in_pairs:
        return _flow(by_chunk, collective.pair_traffic(topology.num_ranks, root))
    if missing := sorted({*range(chunks)} - by_chunk.keys()) if topology.num_ranks > 1 else []:
        raise UnsupportedError(f"chunk {missing[0]} of {chunks} is never sent, so that no rank gets it from another")
    if not collective.has_two_phases:
        inwards = collective.reduces
        return _forest(Counter(_tree(own, topology, inwards=inwards) for own in by_chunk.values()), topology, inwards)
    everyone = frozenset(range(topology.num_ranks))
    phases: list[Counter[Tree]] = [Counter(), Counter()]
    try:
        for own in by_chunk.values():
            sums = sorted((move for move in own if move.parts == everyone), key=lambda move: move.step)
            # A sum that is complete in a switch still has to get to its root.
            turn = int(bool(sums) and sums[0].path[0] >= topology.num_ranks)
            parts = [move for move in own if move.parts != everyone]
            reduced = _tree([*parts, *sums[:turn]], topology, inwards=True)
            copied = _tree(sums[turn:], topology, inwards=False)
            if reduced[0] != copied[0]:
                raise UnsupportedError(f"chunk {own[0].chunk} is added up at rank {reduced[0]}, not {copied[0]}")
            phases[0][reduced] += 1
            phases[1][copied] += 1
    except UnsupportedError as error:
        return _exchange(by_chunk, topology, chunks, str(error))
    halves = (_forest(trees, topology, inwards=not number) for number, trees in enumerate(phases))
    return Allreduce(*halves)


def _tree(moves: Sequence[Move], topology: Topology, *, inwards: bool) -> Tree:
    """Read the moves of one chunk as a tree; `UnsupportedError` if they form none."""
    paths = [move.path[:: -1 if inwards else 1] for move in moves]
    above = {path[-1]: path[0] for path in paths}
    # A copy that a switch sends back to the rank above it is part of the switch's branching.
    paths = [
        path for path in paths if topology.nodes[path[0]] not in topology.loopback or above.get(path[0]) != path[-1]
    ]
    ends = Counter(path[-1] for path in paths)
    what, does = ("passes on a part of", "has to send") if inwards else ("gets", "is to get")
    chunk = f"chunk {moves[0].chunk}" if moves else "a chunk"
    if again := [node for node, times in ends.items() if times > 1]:
        raise UnsupportedError(f"{_name(again[0], topology)} {what} {chunk} {ends[again[0]]} times; it {does} it once")
    roots = {path[0] for path in paths} - ends.keys()
    lacking = [rank for rank in range(topology.num_ranks) if rank not in ends and rank not in roots]
    if len(roots) != 1 or lacking or max(roots) >= topology.num_ranks:
        names = abbreviated_names([_name(node, topology) for node in sorted(roots)] or ["no rank"])
        without = f", and not over {_name(lacking[0], topology)}" if lacking else ""
        way = "to" if inwards else "from"
        raise UnsupportedError(f"{chunk} moves {way} {names}{without}; expected a tree of all ranks")
    if inwards:
        _check_sums(moves, topology.num_ranks)
    elif len({move.parts for move in moves}) > 1:
        raise UnsupportedError(f"{chunk} is passed on by a rank that does not wait for it")
    return roots.pop(), frozenset(paths)


def _check_sums(moves: Sequence[Move], num_ranks: int) -> None:
    """Check that every rank waits for all that it passes on; not of switches."""
    if any(max(move.path[0], move.path[-1]) >= num_ranks or not move.parts for move in moves):
        return
    arriving = defaultdict[int, list[Move]](list)
    for move in moves:
        arriving[move.path[-1]].append(move)
    for move in moves:
        sender = move.path[0]
        if move.parts != frozenset({sender}).union(*(other.parts for other in arriving[sender])):
            raise UnsupportedError(f"rank {sender} passes on its part of chunk {move.chunk} before it is added up")


def _forest(trees: Mapping[Tree, int], topology: Topology, inwards: bool) -> Forest:
    """Join equal trees; a root has as many units of data as chunks, without common divisor."""
    counts = [0] * topology.num_ranks
    for (root, _), times in trees.items():
        counts[root] += times
    common = gcd(*counts)
    ranks = topology.num_ranks
    switches = sorted({end for _, paths in trees for path in paths for end in (path[0], path[-1]) if end >= ranks})
    direction: Direction = "reduce" if inwards else "broadcast"
    rows = [(root, times, sorted(paths)) for (root, paths), times in trees.items()]
    weights = [count // common for count in counts]
    return Forest.from_paths(ranks, common, rows, root_weights=weights, direction=direction, switches=switches)


def _name(node: int, topology: Topology) -> str:
    return f"rank {node}" if node < topology.num_ranks else topology.nodes[node]


def _exchange(by_chunk: Mapping[int, Sequence[Move]], topology: Topology, chunks: int, why: str) -> StepExchange:
    """Let ranks exchange sums in steps: those of the file, or the first ones in which data is there."""
    ranks, problem = topology.num_ranks, ""
    for steps_of in (_stated_steps, _earliest_steps):
        sends: defaultdict[tuple[int, bool, Path], list[int]] = defaultdict(list)
        try:
            for chunk, moves in by_chunk.items():
                for (step, move), adds in _sums(steps_of(moves), ranks):
                    sends[step, adds, move.path].append(chunk)
        except UnsupportedError as error:
            problem = problem or str(error)
            continue
        rows = [
            (step, adds, run[0], run[-1] + 1, path)
            for (step, adds, path), numbers in sends.items()
            for run in _runs(sorted(numbers))
        ]
        order = {step: number for number, step in enumerate(sorted({row[0] for row in rows}))}
        return StepExchange.from_sends(ranks, chunks, [(order[row[0]], *row[1:]) for row in rows])
    raise UnsupportedError(f"these are no trees, as {why}, and no sums in steps, as {problem}")


def _stated_steps(moves: Sequence[Move]) -> list[tuple[int, Move]]:
    return [(move.step, move) for move in moves]


def _earliest_steps(moves: Sequence[Move]) -> list[tuple[int, Move]]:
    """Give each move, in the order of time, the step after those whose sums it includes."""
    arrived, placed = defaultdict[int, list[tuple[int, frozenset[int]]]](list), list[tuple[int, Move]]()
    for move in sorted(moves, key=lambda move: move.step):
        step = max((before + 1 for before, parts in arrived[move.path[0]] if parts <= move.parts), default=0)
        arrived[move.path[-1]].append((step, move.parts))
        placed.append((step, move))
    return placed


def _sums(placed: Sequence[tuple[int, Move]], ranks: int) -> list[tuple[tuple[int, Move], bool]]:
    """Tell of the moves of a chunk, by steps, whether the receiver adds; refuse what ranks do not hold then."""
    sums = [frozenset({rank}) for rank in range(ranks)]
    signs = []
    for step, group in groupby(sorted(placed, key=lambda pair: pair[0]), key=lambda pair: pair[0]):
        together = list(group)
        for _, move in together:
            sender, receiver = move.path[0], move.path[-1]
            if max(sender, receiver) >= ranks:
                raise UnsupportedError("switches add up some of the data")
            if sums[sender] != move.parts:
                raise UnsupportedError(
                    f"rank {sender} sends chunk {move.chunk} of other ranks than it has in step {step}"
                )
        before = list(sums)
        for _, move in together:
            receiver = move.path[-1]
            adds = not before[receiver] & move.parts
            if not adds and not before[receiver] <= move.parts:
                raise UnsupportedError(f"rank {receiver} gets chunk {move.chunk} of some rank again")
            sums[receiver] = sums[receiver] | move.parts if adds else move.parts
            signs.append(((step, move), adds))
    return signs


def _flow(by_chunk: Mapping[int, Sequence[Move]], traffic: IntArray) -> FlowSchedule:
    """Chain the moves of each chunk, from the rank that has it first to the one that gets it last."""
    routes: Counter[tuple[Path, Path]] = Counter()
    amounts = np.zeros_like(traffic)
    for chunk, moves in by_chunk.items():
        onwards = {move.path[0]: move for move in moves}
        starts = onwards.keys() - {move.path[-1] for move in moves}
        if len(starts) != 1 or len(onwards) != len(moves):
            raise UnsupportedError(f"chunk {chunk}, of one rank for another, takes several ways or a circle")
        nodes, steps = [*starts], list[int]()
        while move := onwards.pop(nodes[-1], None):
            steps += [move.step] * (len(move.path) - 1)
            nodes += move.path[1:]
        routes[tuple(nodes), tuple(steps)] += 1
        amounts[nodes[0], nodes[-1]] += 1
    used = (amounts > 0) & (traffic > 0)
    per_unit = {*(amounts[used] // traffic[used]).tolist()}
    if len(per_unit) > 1:
        counts = " and ".join(map(str, sorted(per_unit)))
        raise UnsupportedError(f"pairs of ranks have {counts} chunks each for one part; expected equally many")
    numbers = {step: number for number, step in enumerate(sorted({step for _, steps in routes for step in steps}))}
    rows = [(times, path, tuple(map(numbers.__getitem__, steps))) for (path, steps), times in routes.items()]
    return FlowSchedule.from_paths(traffic, max(per_unit, default=1), rows)


def _runs(numbers: Sequence[int]) -> list[list[int]]:
    """Split increasing numbers into runs without gaps."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and runs[-1][-1] + 1 == number:
            runs[-1].append(number)
        else:
            runs.append([number])
    return runs
