"""Lowering of allreduces in one phase; see docs/explanation/programs.md.

What a rank holds of a chunk has versions: its input, and a further one for every step in which something comes.  Each
version has memory of its own, as it may be sent while the next one comes: the last is in the output, those between in
scratch, which has a vector for each.  Where the rank still sends its input when the last version comes, that one is in
scratch too and copied to the output in the end, as output and input may be the same memory.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from math import gcd
from typing import NamedTuple

import numpy as np

from ...schedules import Collective, StepExchange
from ...schedules.message_order import message_rounds
from ...schedules.trees.tree_schedule import split_range
from ...support.arrays import IntArray
from ..programs.layout import Layout
from ..programs.program import ChunkRange, Dependency, Instruction, Program
from .rank_writer import LoweringOptions, RankWriter, Site, write_program

INPUT, OUTPUT = 0, -1
"""Places of versions; others are vectors of scratch, from 1."""


class _Transfer(NamedTuple):
    """Some cells, which are ranges of chunks, from one place to another that may begin with a sum."""

    sender: int
    receiver: int
    cells: range
    source: int
    added: int | None  # What the receiver adds
    target: int


def lower_exchange(schedule: StepExchange, collective: Collective, options: LoweringOptions, name: str) -> Program:
    """Lower an allreduce in one phase, which is checked first."""
    schedule.check()
    unit = gcd(schedule.chunks, *schedule.lower.tolist(), *schedule.upper.tolist())
    points = np.unique(np.concatenate([[0, schedule.chunks], schedule.lower, schedule.upper])) // unit
    cells = [part for begin, end in pairwise(points.tolist()) for part in split_range(begin, end, options.max_count)]
    firsts = np.array([first for first, _ in cells] + [schedule.chunks // unit])
    versions = _Versions(schedule, firsts * unit)
    transfers = versions.transfers(options, np.diff(firsts))
    layout = Layout.of(collective, schedule.num_ranks, schedule.chunks // unit)
    writer = partial(_ExchangeRankWriter, transfers, firsts.tolist(), versions)
    sizes = [int(firsts[transfer.cells.stop] - firsts[transfer.cells.start]) for transfer in transfers]
    ends = [(transfer.sender, transfer.receiver) for transfer in transfers]
    return write_program(name, layout, ends, sizes, options, writer)


class _Versions:
    """Versions of cells besides the input, int64 (ranks, cells), and whether the only one is made in scratch."""

    def __init__(self, schedule: StepExchange, firsts: IntArray) -> None:
        nodes, starts, routes = schedule.path_nodes, schedule.path_starts, schedule.routes
        self._schedule = schedule
        self._senders, self._receivers = nodes[starts[:-1]][routes], nodes[starts[1:] - 1][routes]
        self._begins, self._ends = (np.searchsorted(firsts, bound) for bound in (schedule.lower, schedule.upper))
        shape = schedule.num_ranks, len(firsts) - 1
        self.last, self.copied = np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=np.bool_)
        self._came, self._number = np.full(shape, -1, dtype=np.int64), np.zeros(shape, dtype=np.int64)
        columns = (schedule.steps, self._senders, self._receivers, self._begins, self._ends)
        sends = sorted(zip(*(column.tolist() for column in columns), strict=True))
        for step, _, receiver, begin, end in sends:
            self.last[receiver, begin:end] += self._came[receiver, begin:end] < step
            self._came[receiver, begin:end] = step
        for step, sender, _, begin, end in sends:
            self.copied[sender, begin:end] |= self._came[sender, begin:end] == step
        self.copied &= self.last == 1
        self._came[:] = -1

    def transfers(self, options: LoweringOptions, sizes: IntArray) -> list[_Transfer]:
        """List all transfers in the global order."""
        schedule, rows = self._schedule, list[_Transfer]()
        rounds = message_rounds(options.groups, self._senders, self._receivers)
        for number in np.lexsort((schedule.lower, self._senders, rounds, schedule.steps)).tolist():
            first = len(rows)
            for cell in range(int(self._begins[number]), int(self._ends[number])):
                one = self._transfer(number, cell)
                before = rows[-1] if len(rows) > first else None
                if before is not None and before._replace(cells=one.cells) == one:
                    joined = range(before.cells.start, one.cells.stop)
                    if sizes[joined.start : joined.stop].sum() <= options.max_count:
                        rows[-1] = one._replace(cells=joined)
                        continue
                rows.append(one)
        return rows

    def _transfer(self, number: int, cell: int) -> _Transfer:
        """Make the transfer of one cell, and the next version at its receiver."""
        sender, receiver, step = (
            int(column[number]) for column in (self._senders, self._receivers, self._schedule.steps)
        )
        source = self._place(sender, cell, self._number[sender, cell] - (self._came[sender, cell] == step))
        begun = self._came[receiver, cell] == step
        self._number[receiver, cell] += not begun
        self._came[receiver, cell] = step
        version = int(self._number[receiver, cell])
        added = self._place(receiver, cell, version - (not begun)) if self._schedule.adds[number] else None
        return _Transfer(sender, receiver, range(cell, cell + 1), source, added, self._place(receiver, cell, version))

    def _place(self, rank: int, cell: int, version: int) -> int:
        """Place of a version; those of a sender that already has the next one count without it."""
        is_last = version == self.last[rank, cell] and not self.copied[rank, cell]
        return OUTPUT if is_last else int(version)


class _ExchangeRankWriter(RankWriter):
    """Writes one rank's ends of transfers; what reads or writes a cell waits for the steps that did before."""

    def __init__(self, transfers: Sequence[_Transfer], firsts: Sequence[int], versions: _Versions, rank: int) -> None:
        self._transfers, self._firsts, self._rank = transfers, firsts, rank
        self._copied = np.flatnonzero(versions.copied[rank]).tolist()
        self.scratch = firsts[-1] * int((versions.last - 1 + versions.copied)[rank].max())
        self._written: dict[tuple[int, int], Site] = {}
        self._read: defaultdict[tuple[int, int], list[Site]] = defaultdict(list)

    def copies(self) -> list[Instruction]:
        """Copy what is summed in scratch."""
        ranges = [(range(cell, cell + 1), self._firsts[cell + 1] - self._firsts[cell]) for cell in self._copied]
        return [
            Instruction("copy", self._chunks(cells, 1), self._chunks(cells, OUTPUT), count) for cells, count in ranges
        ]

    def waiting(self, copies: list[Instruction]) -> list[Instruction]:
        """Copy when the sums are complete and the input has been sent."""
        sites = ([self._written[1, cell], *self._read[INPUT, cell]] for cell in self._copied)
        depends = (tuple(Dependency(*site) for site in dict(sorted(earlier)).items()) for earlier in sites)
        return [replace(copy, depends=waits) for copy, waits in zip(copies, depends, strict=True)]

    def step(self, number: int, here: Site) -> tuple[Instruction, Iterable[Site]]:
        """Write this rank's end of a transfer, and what it waits for."""
        transfer = self._transfers[number]
        count = self._firsts[transfer.cells.stop] - self._firsts[transfer.cells.start]
        sends = transfer.sender == self._rank
        reads, writes = (transfer.source, None) if sends else (transfer.added, transfer.target)
        sites = self._touch(transfer.cells, reads, writes, here)
        source, target = (None if place is None else self._chunks(transfer.cells, place) for place in (reads, writes))
        return Instruction("send" if sends else "recv_reduce" if source else "recv", source, target, count), sites

    def _touch(self, cells: range, source: int | None, target: int | None, here: Site) -> Iterable[Site]:
        """Record a step that reads one place and writes another, and return what it waits for."""
        sites = list[Site]()
        for cell in cells:
            if source is not None:
                sites += [self._written[source, cell]] if (source, cell) in self._written else []
                self._read[source, cell].append(here)
            if target is not None:
                # The output may be the memory of the input.
                for place in (INPUT, OUTPUT) if target == OUTPUT else (target,):
                    sites += self._read.pop((place, cell), [])
                    sites += [self._written[place, cell]] if (place, cell) in self._written else []
                self._written[target, cell] = here
        return dict(sorted(site for site in sites if site[0] != here[0])).items()  # The last of each thread block

    def _chunks(self, cells: range, place: int) -> ChunkRange:
        """Chunks of cells in a buffer."""
        first = self._firsts[cells.start]
        if place in (INPUT, OUTPUT):
            return ChunkRange("input" if place == INPUT else "output", first)
        return ChunkRange("scratch", (place - 1) * self._firsts[-1] + first)
