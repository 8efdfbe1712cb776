"""Transport of rows along hops: copies of them on the way there, sums on the way back."""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING

from ..execution.arguments import import_torch
from .rounds import ARRIVED, OWN, RankHops, Route

if TYPE_CHECKING:
    import torch

Parts = list["torch.Tensor"]
"""Tensors with the same number of rows, which travel together."""


def packed(parts: Parts) -> torch.Tensor:
    """Join the bytes of parts, row by row; shape (rows, bytes)."""
    torch, _ = import_torch()
    # By way of one dimension, as torch has strides of its own for matrices without rows.
    flat = [(part.contiguous().view(-1).view(torch.uint8), part.element_size() * part.shape[1]) for part in parts]
    return torch.cat([data.view(len(parts[0]), width) for data, width in flat], dim=1)  # type: ignore[no-any-return]


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
    return aligned.view(-1).view(like.dtype).view(len(columns), like.shape[1])


def scatter(route: Route, parts: Parts) -> Parts:
    """Send a row of each token to all ranks that want it; return arriving rows, round by round in order of hops."""
    torch, _ = import_torch()
    rows = packed(parts)
    arrived: Parts = []
    for number in range(len(route.plan.rounds)):
        rows_here = torch.cat([rows, *arrived]) if arrived else rows
        arrived.append(_there(route, route.hops_of(number, rows_here), rows_here))
    return unpacked(torch.cat(arrived) if len(arrived) > 1 else arrived[0], parts)


def gather(route: Route, parts: Parts) -> Parts:
    """Add up the ranks' rows of each token, in float32 at least; return the sums for this rank's tokens."""
    counts = [int(hops.sizes[ARRIVED]) for hops in route.hops]
    begins = [route.num_tokens, *(route.num_tokens + end for end in accumulate(counts))]
    sums = _zeros(parts, begins[-2])  # What arrives in the last round is sent on by nobody.
    for hops, begin, end in reversed(list(zip(route.hops, begins, begins[1:], strict=False))):
        contributions = [part[begin - route.num_tokens : end - route.num_tokens] for part in parts]
        if end <= begins[-2]:
            contributions = [
                (one[begin:end] + part).to(part.dtype) for one, part in zip(sums, contributions, strict=True)
            ]
        _back(route, hops, contributions, sums)
    return [one[: route.num_tokens].to(part.dtype) for one, part in zip(sums, parts, strict=True)]


def _there(route: Route, hops: RankHops, own: torch.Tensor) -> torch.Tensor:
    """Make the hops of one round with rows that a rank has; return those that arrive."""
    torch, _ = import_torch()
    areas, index = {OWN: own}, torch.from_numpy(hops.rows).to(own.device)
    areas[ARRIVED] = own.new_empty(int(hops.sizes[ARRIVED]), own.shape[1])
    for step, lists in hops.steps():
        takes = [hop for hop in lists if not hop.is_send]
        sends = [(hop.peer, areas[hop.source][hop.of(index)]) for hop in lists if hop.is_send]
        sizes = [(hop.peer, hop.length) for hop in takes]
        contents = route.peers.exchange(own, sends, sizes, f"step {step} of a dispatch")
        for hop, content in zip(takes, contents, strict=True):
            if hop.target not in areas:
                areas[hop.target] = own.new_empty(int(hops.sizes[hop.target]), own.shape[1])
            areas[hop.target][hop.of(index)] = content
        for source in {hop.source for hop in lists} - {OWN}:
            areas.pop(source, None)
    return areas[ARRIVED]


def _back(route: Route, hops: RankHops, parts: Parts, total: Parts) -> None:
    """Make the hops of one round backwards, with rows for those that arrived; add sums to those of the own rows."""
    torch, _ = import_torch()
    areas, sums = {ARRIVED: packed(parts)}, {OWN: total}
    rows = areas[ARRIVED]
    index = torch.from_numpy(hops.rows).to(rows.device)
    for step, lists in hops.steps(backwards=True):
        takes = [hop for hop in lists if hop.is_send]
        sends = [(hop.peer, areas[hop.target][hop.of(index)]) for hop in lists if not hop.is_send]
        sizes = [(hop.peer, hop.length) for hop in takes]
        contents = route.peers.exchange(rows, sends, sizes, f"step {step} of a combine, which counts backwards")
        for hop, content in zip(takes, contents, strict=True):
            if hop.source not in sums:
                sums[hop.source] = _zeros(parts, int(hops.sizes[hop.source]))
            for one, part in zip(sums[hop.source], unpacked(content, parts), strict=True):
                one[hop.of(index)] += part  # No place comes twice, so no order is left open.
        for source in sums.keys() - {OWN}:
            areas[source] = packed([one.to(part.dtype) for one, part in zip(sums.pop(source), parts, strict=True)])
        for target in {hop.target for hop in lists} - {ARRIVED}:
            areas.pop(target, None)


def sum_type(dtype: torch.dtype) -> torch.dtype:
    """Type that values of a type are added up in."""
    torch, _ = import_torch()
    return torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype


def _zeros(parts: Parts, rows: int) -> Parts:
    return [part.new_zeros((rows, part.shape[1]), dtype=sum_type(part.dtype)) for part in parts]
