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
    return torch.cat([each.view(len(parts[0]), width) for each, width in flat], dim=1)  # type: ignore[no-any-return]


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
    """Send a row of each token to all ranks that want it; return what arrives here, round by round in order of hops."""
    torch, _ = import_torch()
    rows = packed(parts)
    arrived: Parts = []
    for number in range(len(route.plan.rounds)):
        known = torch.cat([rows, *arrived]) if arrived else rows
        arrived.append(_there(route, route.hops_of(number, known), known))
    return unpacked(torch.cat(arrived) if len(arrived) > 1 else arrived[0], parts)


def gather(route: Route, parts: Parts) -> Parts:
    """Add up, in float32 at least for each hop, what ranks have for tokens; return the sums for this rank's tokens."""
    counts = [int(hops.sizes[ARRIVED]) for hops in route.hops]
    begins = [route.num_tokens, *(route.num_tokens + end for end in accumulate(counts))]
    sums = _zeros(parts, begins[-2])  # What arrives in the last round is sent on by nobody.
    for hops, begin, end in reversed(list(zip(route.hops, begins, begins[1:], strict=False))):
        given = [part[begin - route.num_tokens : end - route.num_tokens] for part in parts]
        if end <= begins[-2]:
            given = [(one[begin:end] + part).to(part.dtype) for one, part in zip(sums, given, strict=True)]
        _back(route, hops, given, sums)
    return [one[: route.num_tokens].to(part.dtype) for one, part in zip(sums, parts, strict=True)]


def _there(route: Route, hops: RankHops, own: torch.Tensor) -> torch.Tensor:
    """Make the hops of one round with rows that a rank has; return those that arrive."""
    torch, _ = import_torch()
    areas, index = {OWN: own}, torch.from_numpy(hops.rows).to(own.device)
    areas[ARRIVED] = own.new_empty(int(hops.sizes[ARRIVED]), own.shape[1])
    for step, lists in hops.steps():
        takes = [each for each in lists if not each.is_send]
        sends = [(each.peer, areas[each.source][each.of(index)]) for each in lists if each.is_send]
        sizes = [(each.peer, each.length) for each in takes]
        contents = route.peers.exchange(own, sends, sizes, f"step {step} of a dispatch")
        for each, content in zip(takes, contents, strict=True):
            if each.target not in areas:
                areas[each.target] = own.new_empty(int(hops.sizes[each.target]), own.shape[1])
            areas[each.target][each.of(index)] = content
        for source in {each.source for each in lists} - {OWN}:
            areas.pop(source, None)
    return areas[ARRIVED]


def _back(route: Route, hops: RankHops, parts: Parts, total: Parts) -> None:
    """Make the hops of one round backwards, with rows for those that arrived; add sums to those of the own rows."""
    torch, _ = import_torch()
    areas, sums = {ARRIVED: packed(parts)}, {OWN: total}
    rows = areas[ARRIVED]
    index = torch.from_numpy(hops.rows).to(rows.device)
    for step, lists in hops.steps(backwards=True):
        takes = [each for each in lists if each.is_send]
        sends = [(each.peer, areas[each.target][each.of(index)]) for each in lists if not each.is_send]
        sizes = [(each.peer, each.length) for each in takes]
        contents = route.peers.exchange(rows, sends, sizes, f"step {step} of a combine, which counts backwards")
        for each, content in zip(takes, contents, strict=True):
            if each.source not in sums:
                sums[each.source] = _zeros(parts, int(hops.sizes[each.source]))
            for one, part in zip(sums[each.source], unpacked(content, parts), strict=True):
                one[each.of(index)] += part  # No place comes twice, so no order is left open.
        for source in sums.keys() - {OWN}:
            areas[source] = packed([one.to(part.dtype) for one, part in zip(sums.pop(source), parts, strict=True)])
        for target in {each.target for each in lists} - {ARRIVED}:
            areas.pop(target, None)


def sum_type(dtype: torch.dtype) -> torch.dtype:
    """Type that values of a type are added up in."""
    torch, _ = import_torch()
    return torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype


def _zeros(parts: Parts, rows: int) -> Parts:
    return [part.new_zeros((rows, part.shape[1]), dtype=sum_type(part.dtype)) for part in parts]
