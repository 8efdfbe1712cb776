"""One rank's part of a resharding: packing slices, their messages, and unpacking, in memory of a stated size."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np

from ...errors import ProgramError
from ..execution.agreement import explained, first_line, post, wait_for_all
from ..execution.arguments import import_torch
from ..execution.call_queue import TAG
from .cells import Cell, Resharding
from .moves import BATCH, END, FIRST, ITEM, LEVEL, RECEIVER, SENDER, Interval, Moves, RankShare, shares, slice_range


class RankMessage(NamedTuple):
    """A message of one rank for each slice."""

    level: int
    peer: int
    is_send: bool
    interval: int  # Place among those of the rank, in which its units are
    units: Interval


class RankRoute:
    """Messages, memory and cells of one rank; the same for all calls with tensors of the same kind."""

    def __init__(self, resharding: Resharding, moves: Moves, rank: int) -> None:
        self.resharding, self.moves, self.rank = resharding, moves, rank
        self.sizes = [item.size for item in resharding.items]
        self.units = moves.units.tolist()
        self.share = shares(moves.rows).get(rank, RankShare([], 0, 0))
        largest = [-(-size // moves.slices) for size in self.sizes]
        *self.places, self.area = self.share.places(largest, self.units)
        self.by_item: dict[int, list[int]] = {}
        for number, one in enumerate(self.share.intervals):
            self.by_item.setdefault(one.item, []).append(number)
        own = moves.rows[(moves.rows[:, SENDER] == rank) | (moves.rows[:, RECEIVER] == rank)].tolist()
        self.batches = {
            batch: [self._message(row) for row in rows] for batch, rows in groupby(own, key=lambda row: row[BATCH])
        }
        self.packs = {number for number in self.by_item if rank in resharding.items[number].sources}
        self.takes = {number for number in self.by_item if rank in resharding.items[number].destinations}
        # Relays need no cells.
        self.cells = {number: list(resharding.cells(number)) for number in self.packs | self.takes}
        self.begins = {number: [cell.begin for cell in cells] for number, cells in self.cells.items()}
        self.own = list(resharding.own_cells(rank))
        self.corners = [_corners(tensor.source, tensor.target, tensor.shape, rank) for tensor in resharding.tensors]

    @property
    def scratch(self) -> int:
        """Bytes of memory for slices under way."""
        return self.area * self.share.num_levels

    @property
    def sent_bytes(self) -> int:
        """Bytes that this rank sends."""
        sends = [message.units for batch in self.batches.values() for message in batch if message.is_send]
        return sum(
            end - begin
            for number in range(self.moves.slices)
            for begin, end in (self._bytes(units, number) for units in sends)
        )

    def _message(self, row: list[int]) -> RankMessage:
        is_send = row[SENDER] == self.rank
        units = Interval(row[ITEM], row[FIRST], row[END])
        # Intervals of an item are apart and in order, and one of them has all units of the message.
        interval = next(place for place in self.by_item[units.item] if units.first < self.share.intervals[place].end)
        return RankMessage(row[LEVEL], row[RECEIVER if is_send else SENDER], is_send, interval, units)

    def _bytes(self, units: Interval, number: int) -> tuple[int, int]:
        """Return the bytes of an item that some of its units are in a slice."""
        begin, end = slice_range(self.sizes[units.item], self.moves.slices, number)
        size, count = end - begin, self.units[units.item]
        return begin + units.first * size // count, begin + units.end * size // count

    def piece(self, message: RankMessage, number: int) -> tuple[int, int, int]:
        """Return where the bytes of a message are in the memory, and their first and last place in the item."""
        begin, end = self._bytes(message.units, number)
        first, _ = self._bytes(self.share.intervals[message.interval], number)
        return self.area_of(number) + self.places[message.interval] + begin - first, begin, end

    def area_of(self, number: int) -> int:
        """Return where the memory for a slice begins."""
        return number % self.share.num_levels * self.area

    def packing(self, number: int) -> Iterator[tuple[int, int, int, int]]:
        """Yield item, first and last byte, and place in the memory, of all that this rank puts there of a slice."""
        for place, units in zip(self.places, self.share.intervals, strict=True):
            if units.item in self.packs:
                yield units.item, *self._bytes(units, number), self.area_of(number) + place

    def overlapping(self, item: int, begin: int, end: int) -> Iterator[tuple[Cell, int, int]]:
        """Yield the cells of some bytes of an item, with the first and the last of them, counted in the cell."""
        cells = self.cells[item]
        place = bisect_right(self.begins[item], begin) - 1
        while begin < end:
            cell = cells[place]
            stop = min(end, cell.begin + cell.size)
            yield cell, begin - cell.begin, stop - cell.begin
            begin, place = stop, place + 1


def _corners(source: Any, target: Any, shape: tuple[int, ...], rank: int) -> list[Any]:
    """Return where the slices of a rank begin in a whole tensor, before and after; None where it has none."""
    return [
        sharding.boxes(shape)[sharding.mesh.ranks.index(rank), :, 0] if rank in sharding.mesh.ranks else None
        for sharding in (source, target)
    ]


SOURCE, TARGET = range(2)


Tables = tuple[Mapping[str, Any], Mapping[str, Any]]
"""Tensors of a rank by name, before and after."""


def run(route: RankRoute, tables: Tables, device: Any, group: Any, timeout: float | None) -> None:
    """Move the tensors; `ProgramError` if an exchange fails."""
    torch, _ = import_torch()
    made_so = any(tensor.is_inference() for table in tables for tensor in table.values())
    # Tensors that were made in inference mode can be written to in that mode alone; others are to notice that they are.
    with torch.inference_mode() if made_so else torch.no_grad():
        memory = torch.empty(route.scratch, dtype=torch.uint8, device=device)
        tensors: list[list[Any]] = [
            [
                None if corner is None else _bytes_of(table[tensor.name])
                for corner, table in zip(corners, tables, strict=True)
            ]
            for tensor, corners in zip(route.resharding.tensors, route.corners, strict=True)
        ]

        def view(cell: Cell, side: int) -> Any:
            corner, itemsize = route.corners[cell.tensor][side], route.resharding.tensors[cell.tensor].itemsize
            place = tensors[cell.tensor][side]
            if not len(cell.box):
                return place
            edges = (cell.box - corner[:, None]) * np.array([1] * (len(cell.box) - 1) + [itemsize])[:, None]
            return place[tuple(slice(begin, end) for begin, end in edges.tolist())]

        for cell in route.own:
            view(cell, TARGET).copy_(view(cell, SOURCE))
        share, slices = route.share, route.moves.slices
        for step in range(slices + route.moves.num_levels - 1):
            if share.num_levels and 0 <= (number := step - share.first_level) < slices:
                for item, begin, end, place in route.packing(number):
                    for cell, first, last in route.overlapping(item, begin, end):
                        flat = memory[place + cell.begin + first - begin : place + cell.begin + last - begin]
                        _copy_part(view(cell, SOURCE), first, last, flat, _pack)
            for batch in route.batches.values():
                landed = _exchange(route, batch, step, memory, group, timeout)
                for message, (place, begin, end) in landed:
                    for cell, first, last in route.overlapping(message.units.item, begin, end):
                        flat = memory[place + cell.begin + first - begin : place + cell.begin + last - begin]
                        _copy_part(view(cell, TARGET), first, last, flat, _unpack)


def _exchange(
    route: RankRoute, batch: list[RankMessage], step: int, memory: Any, group: Any, timeout: float | None
) -> list[tuple[RankMessage, tuple[int, int, int]]]:
    """Run the messages of a batch in one step; return those that this rank keeps, with their places."""
    messages, landed = [], []
    for message in batch:
        if 0 <= (number := step - message.level) < route.moves.slices:
            place, begin, end = route.piece(message, number)
            if begin < end:
                messages.append((message.peer, message.is_send, memory[place : place + end - begin]))
                if not message.is_send and message.units.item in route.takes:
                    landed.append((message, (place, begin, end)))
    try:
        wait_for_all(post(group, TAG, messages), timeout)
    except (RuntimeError, ValueError) as error:  # The latter if the group has been destroyed meanwhile.
        peers = sorted({peer for peer, _, _ in messages})
        raise ProgramError(
            f"rank {route.rank} could not finish step {step + 1} of {route.moves.slices + route.moves.num_levels - 1} "
            f"of a resharding, in which it exchanges data with ranks {peers}: {first_line(error)}"
            f"{explained(group, 'in a resharding')}"
        ) from error
    return landed


def _bytes_of(tensor: Any) -> Any:
    """View a tensor as bytes, of which the last dimension has those of its elements; one without dimensions has one."""
    torch, _ = import_torch()
    return (tensor if tensor.dim() else tensor.view(1)).view(torch.uint8)


def _pack(part: Any, flat: Any) -> None:
    flat.view(part.shape).copy_(part)


def _unpack(part: Any, flat: Any) -> None:
    part.copy_(flat.view(part.shape))


def _copy_part(tensor: Any, first: int, last: int, flat: Any, copy: Callable[[Any, Any], None]) -> None:
    """Copy between bytes `first` to `last` of a tensor, row by row, and as many bytes in a row."""
    if (first, last) == (0, tensor.numel()):
        copy(tensor, flat)
        return
    if tensor.dim() == 1:
        copy(tensor[first:last], flat)
        return
    row = tensor.numel() // len(tensor)
    begin, end = -(-first // row), last // row
    if begin > end:  # All in one row
        _copy_part(tensor[end], first - end * row, last - end * row, flat, copy)
        return
    head, tail = begin * row - first, last - end * row
    if head:
        _copy_part(tensor[begin - 1], row - head, row, flat[:head], copy)
    if begin < end:
        copy(tensor[begin:end], flat[head : head + (end - begin) * row])
    if tail:
        _copy_part(tensor[end], 0, tail, flat[len(flat) - tail :], copy)
