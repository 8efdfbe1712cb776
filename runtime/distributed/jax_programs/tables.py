"""Rounds of messages as partial permutations of the ranks, with tables of the rows of memory that each rank uses.

A rank's memory is one array, whose rows are its input, output, scratch and staging area, one after the other.  All
ranks do the same with it, on rows that a table has for each.  Between two ranks, the messages of a round are one; the
pairs of a round are divided into as few permutations as a rank has partners, by an edge coloring with alternating
paths.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import accumulate, count
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ...programs.program import Program
from ..rounds.batches import Piece, RankRounds, Sum, aligned_rounds

Pair = tuple[int, int]
BEYOND = 2**31 - 1  # A row that no memory has


class Rows(NamedTuple):
    """Rows of each rank's memory, as a place in the numbers that it has.

    From `place` on are its `width` rows, beyond the last of memory where it has fewer; or, if those of every rank are
    `consecutive`, the first, and at `lengths` how many there are, None if all ranks have as many.
    """

    place: int
    width: int
    consecutive: bool
    lengths: int | None


class Permutation(NamedTuple):
    """Messages of which each rank sends and receives at most one; no pairs are copies on every rank."""

    pairs: tuple[Pair, ...]
    source: Rows
    target: Rows


class Addition(NamedTuple):
    """Sums ``target = one + other``, row by row."""

    one: Rows
    other: Rows
    target: Rows


class Step(NamedTuple):
    """A round: permutations, which all read memory before any writes to it, and additions one after the other."""

    permutations: tuple[Permutation, ...]
    additions: tuple[Addition, ...]


class RowProgram(NamedTuple):
    """What all ranks run.

    `numbers`: What each rank has in place of `Rows`, shape (ranks, any).  `output`: First row of the output.  `size`:
    Rows of memory, with those that a slice of a fixed width may reach beyond the last.
    """

    steps: tuple[Step, ...]
    numbers: npt.NDArray[np.uint32]
    output: int
    size: int


@lru_cache(maxsize=64)
def row_program(program: Program, slices: int, rows: int, inputs: int, outputs: int) -> RowProgram:
    """Write a checked program as one for all ranks, given `rows` in all, and in the largest input and output."""
    ranks = aligned_rounds(program, slices, rows)
    sizes = (inputs, outputs, max(each.scratch for each in ranks), max(each.staging for each in ranks))
    *begins, size = accumulate(sizes, initial=0)
    writer = _StepWriter(ranks, dict(zip(("input", "output", "scratch", "staging"), begins, strict=True)), size)
    steps = [
        Step(tuple(writer.permutations(number)), tuple(writer.additions(number)))
        for number in range(len(ranks[0].rounds))
    ]
    return RowProgram(tuple(filter(any, steps)), np.hstack(writer.numbers), begins[1], writer.size)


class _StepWriter:
    """Writes the rounds of all ranks as steps, and the numbers of their tables."""

    def __init__(self, ranks: Sequence[RankRounds], bases: Mapping[str, int], size: int) -> None:
        self.ranks = ranks
        self.bases = bases
        self.size = size
        self.numbers = [np.zeros((len(ranks), 1), dtype=np.uint32)]
        self.count = 1

    def permutations(self, number: int) -> Iterator[Permutation]:
        """Yield the copies and permutations of a round."""
        sources: dict[Pair, list[int]] = defaultdict(list)
        targets: dict[Pair, list[int]] = defaultdict(list)
        for rank, work in enumerate(self.ranks):
            # Both ends have the messages of a pair in the same order.
            for each in work.rounds[number].operations:
                rows = sources[rank, each.peer] if each.is_send else targets[each.peer, rank]
                rows += self._place(each.piece)
            for copy in work.rounds[number].copies:
                sources[rank, rank] += self._place(copy.source)
                targets[rank, rank] += self._place(copy.target)
        # The longest first, so that messages of one permutation are about equally long.
        pairs = sorted((pair for pair, rows in sources.items() if rows), key=lambda pair: -len(sources[pair]))
        moves: dict[int, list[Pair]] = defaultdict(list)
        for pair, color in edge_coloring(pair for pair in pairs if pair[0] != pair[1]).items():
            moves[color].append(pair)
        stays = [pair for pair in pairs if pair[0] == pair[1]]
        for group in (stays, *moves.values()):
            if group:
                source, target = (
                    self._rows({pair[end]: rows[pair] for pair in group}) for end, rows in enumerate((sources, targets))
                )
                yield Permutation(() if group is stays else tuple(group), source, target)

    def additions(self, number: int) -> Iterator[Addition]:
        """Yield the sums of a round, those that need the results of others after these."""
        levels: dict[int, list[dict[int, list[int]]]] = defaultdict(lambda: [defaultdict(list) for _ in Sum._fields])
        for rank, work in enumerate(self.ranks):
            last: dict[int, int] = {}
            for each in work.rounds[number].sums:
                places = [self._place(piece) for piece in each]
                touched = [row for rows in places for row in rows]
                if not touched:
                    continue
                level = 1 + max(last.get(row, -1) for row in touched)
                last |= dict.fromkeys(touched, level)
                for found, rows in zip(levels[level], places, strict=True):
                    found[rank] += rows
        for _, parts in sorted(levels.items()):
            yield Addition(*map(self._rows, parts))

    def _place(self, piece: Piece) -> range:
        return range(self.bases[piece.memory] + piece.begin, self.bases[piece.memory] + piece.end)

    def _rows(self, found: Mapping[int, Sequence[int]]) -> Rows:
        """Write the table of the rows of some ranks; others have none."""
        place, width = self.count, max(map(len, found.values()))
        if any(list(rows) != list(range(rows[0], rows[0] + len(rows))) for rows in found.values()):
            table = np.full((len(self.ranks), width), BEYOND, dtype=np.uint32)
            for rank, rows in found.items():
                table[rank, : len(rows)] = rows
            self._write(table)
            return Rows(place, width, False, None)
        begins = [rows[0] for rows in found.values()]
        self.size = max(self.size, max(begins) + width)
        firsts = [found[rank][0] if rank in found else begins[0] for rank in range(len(self.ranks))]
        lengths = [len(found.get(rank, ())) for rank in range(len(self.ranks))]
        self._write(np.array([firsts, lengths], dtype=np.uint32).T)
        return Rows(place, width, True, place + 1 if min(lengths) < width else None)

    def _write(self, table: npt.NDArray[np.uint32]) -> None:
        self.numbers.append(table)
        self.count += table.shape[1]


def edge_coloring(edges: Iterable[tuple[int, int]]) -> dict[tuple[int, int], int]:
    """Color a bipartite graph's edges, none of one color meeting, with the largest degree's many colors (König, 1916).

    An edge gets a color a that its left vertex lacks.  If its right vertex has a but lacks b, a and b change places on
    the path of these colors that starts there; it cannot end at the left vertex, which it would reach by color a.

    >>> edge_coloring([(0, 1), (1, 2), (2, 0), (0, 2)])
    {(0, 1): 0, (1, 2): 0, (2, 0): 0, (0, 2): 1}
    """
    colors: dict[tuple[int, int], int] = {}
    # The other end of the edge of a color, by vertex: left ones first, then right ones.
    ends: tuple[dict[tuple[int, int], int], ...] = ({}, {})
    for left, right in edges:
        here = next(color for color in count() if (left, color) not in ends[0])
        there = next(color for color in count() if (right, color) not in ends[1])
        path, vertex, side, color = [], right, 1, here
        while here != there and (vertex, color) in ends[side]:
            other = ends[side][vertex, color]
            path.append(((vertex, other) if side == 0 else (other, vertex), here + there - color))
            vertex, side, color = other, 1 - side, here + there - color
        for edge, _ in path:
            for side in (0, 1):
                ends[side].pop((edge[side], colors[edge]), None)
        for edge, color in [*path, ((left, right), here)]:
            colors[edge] = color
            for side in (0, 1):
                ends[side][edge[side], color] = edge[1 - side]
    return colors
