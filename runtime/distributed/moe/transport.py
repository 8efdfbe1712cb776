"""Transport of rows along hops: copies of them on the way there, sums on the way back."""

from __future__ import annotations

from itertools import accumulate, groupby
from typing import TYPE_CHECKING, Any, NamedTuple

from ....errors import ProgramError
from ....support.arrays import IntArray
from ..calls.agreement import first_line, post, wait_for_all
from ..calls.arguments import import_torch
from ..calls.call_queue import TAG
from .hops import ARRIVED, OWN, Hop, RankHops

if TYPE_CHECKING:
    import torch

Parts = list["torch.Tensor"]
"""Tensors with the same number of rows, which travel together."""


class Route(NamedTuple):
    """The hops of one rank, with whom, how long at most, and the bytes that it has sent to each rank; these grow."""

    hops: RankHops
    num_tokens: int
    group: Any
    timeout: float | None
    sent: IntArray


def packed(parts: Parts) -> torch.Tensor:
    """Join the bytes of parts, row by row; shape (rows, bytes)."""
    torch, _ = import_torch()
    # By way of one dimension, as torch has strides of its own for matrices without rows.
    flat = [(part.contiguous().view(-1).view(torch.uint8), part.element_size() * part.shape[1]) for part in parts]
    return torch.cat([each.view(-1, width) for each, width in flat], dim=1)  # type: ignore[no-any-return]


def unpacked(rows: torch.Tensor, likes: Parts) -> Parts:
    """Divide rows of bytes into parts of the types and widths of others."""
    widths = [like.shape[1] * like.element_size() for like in likes]
    ends = accumulate(widths)
    columns = zip(ends, widths, likes, strict=True)
    return [_typed(rows[:, end - width : end], like) for end, width, like in columns]


def _typed(columns: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    torch, _ = import_torch()
    # A matrix of one row or none counts as contiguous, but may begin where no value of the type may.
    aligned = columns.clone(memory_format=torch.contiguous_format)
    return aligned.view(-1).view(like.dtype).view(-1, like.shape[1])


def scatter(route: Route, parts: Parts) -> Parts:
    """Send a row of each token to all ranks that want it; return what arrives here, in the order of the hops."""
    rows = packed(parts)
    areas = {OWN: rows}
    for step, hops in groupby(route.hops.hops, key=lambda hop: hop.step):
        exchange = _Exchange(route, rows)
        moved = []
        for hop in hops:
            source = areas[OWN] if hop.source == OWN else areas.pop(hop.source, rows[:0])
            if hop.target not in areas:
                areas[hop.target] = rows.new_empty(route.hops.sizes.get(hop.target, 0), rows.shape[1])
            for peer, chosen in hop.sends.items():
                exchange.send(peer, source[_index(chosen, rows)])
            moved += [
                (hop.target, places, exchange.receive(peer, len(places))) for peer, places in hop.receives.items()
            ]
            moved.append((hop.target, hop.kept[1], source[_index(hop.kept[0], rows)]))
        exchange.run(f"step {step} of a dispatch")
        for target, places, content in moved:
            areas[target][_index(places, rows)] = content
    return unpacked(areas.get(ARRIVED, rows[:0]), parts)


def gather(route: Route, parts: Parts) -> Parts:
    """Add up what the ranks that want a token have for it, in servers first; return the sums for this rank's tokens.

    Sums are rounded to the type of the parts for every hop; within one, they are of float32 at least.
    """
    rows = packed(parts)
    areas = {ARRIVED: rows}
    total = _zeros(parts, route.num_tokens)
    for step, hops in groupby(reversed(route.hops.hops), key=lambda hop: hop.step):
        exchange = _Exchange(route, rows)
        received: list[tuple[Hop, Any, list[tuple[IntArray, Any]]]] = []
        for hop in hops:
            target = areas[ARRIVED] if hop.target == ARRIVED else areas.pop(hop.target, rows[:0])
            for peer, chosen in hop.receives.items():
                exchange.send(peer, target[_index(chosen, rows)])
            contents = [(places, exchange.receive(peer, len(places))) for peer, places in sorted(hop.sends.items())]
            received.append((hop, target[_index(hop.kept[1], rows)], contents))
        exchange.run(f"step {step} of a combine, which counts backwards")
        for hop, kept, contents in received:
            sums = total if hop.source == OWN else _zeros(parts, route.hops.sizes.get(hop.source, 0))
            for places, content in [(hop.kept[0], kept), *contents]:
                for one, part in zip(sums, unpacked(content, parts), strict=True):
                    one[_index(places, rows)] += part  # No place comes twice, so no order is left open.
            if hop.source != OWN:
                areas[hop.source] = packed([one.to(part.dtype) for one, part in zip(sums, parts, strict=True)])
    return [one.to(part.dtype) for one, part in zip(total, parts, strict=True)]


def sum_type(dtype: torch.dtype) -> torch.dtype:
    """Type that values of a type are added up in."""
    torch, _ = import_torch()
    return torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype


def _zeros(parts: Parts, rows: int) -> Parts:
    return [part.new_zeros((rows, part.shape[1]), dtype=sum_type(part.dtype)) for part in parts]


def _index(rows: IntArray, like: torch.Tensor) -> torch.Tensor:
    torch, _ = import_torch()
    return torch.from_numpy(rows).to(like.device)  # type: ignore[no-any-return]


class _Exchange:
    """The messages of one step."""

    def __init__(self, route: Route, like: torch.Tensor) -> None:
        self.route, self.like = route, like
        self.messages: list[tuple[int, bool, torch.Tensor]] = []

    def send(self, peer: int, rows: torch.Tensor) -> None:
        """Post rows for a peer."""
        self.messages.append((peer, True, rows))
        self.route.sent[peer] += rows.numel()

    def receive(self, peer: int, rows: int) -> torch.Tensor:
        """Return where so many rows of a peer will be."""
        room = self.like.new_empty(rows, self.like.shape[1])
        self.messages.append((peer, False, room))
        return room

    def run(self, what: str) -> None:
        """Send and receive all of them."""
        try:
            wait_for_all(post(self.route.group, TAG, self.messages), self.route.timeout)
        except (RuntimeError, ValueError) as error:
            raise ProgramError(
                f"rank {self.route.group.rank()} could not finish {what}: {first_line(error)}"
            ) from error
