"""Rounds of a dispatch: hops of rows between ranks, their transport there, and the sums on the way back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import accumulate, groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ...errors import ProgramError
from ...planners.all_to_all.dispatch import DispatchPlan, class_numbers
from ...schedules.stages.schedule import AllToAllvSchedule
from ...support.arrays import IntArray
from ..execution.agreement import first_line, post, wait_for_all
from ..execution.arguments import import_torch
from ..execution.call_queue import TAG

if TYPE_CHECKING:
    from collections.abc import Iterable

    import torch

    from ...solvers.steps.dispatch import MaskArray


Parts = list["torch.Tensor"]
"""Tensors with the same number of rows, which travel together."""
OWN, ARRIVED = 0, 1
"""Areas of rows: own rows and arrived rows; 2 s + 2 and 2 s + 3 are the rows that it sends and gets in stage s."""
NUMBER_BITS = 28
MAX_TOKENS = 2**NUMBER_BITS
MAX_RELAY_SERVERS = 8
"""The bits above a number, but for the sign, tell so many chiefs."""


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


class HopList(NamedTuple):
    """Rows of an area that a peer gets in one step, or that come from it for another area."""

    source: int
    target: int
    is_send: int
    peer: int
    begin: int
    end: int

    @property
    def length(self) -> int:
        """Number of rows."""
        return self.end - max(self.begin, -1 - self.begin)

    def of(self, rows: Any) -> Any:
        """Index of the rows: some of all lists' `rows`, or the numbers from ``-1 - begin`` to the end."""
        return rows[self.begin : self.end] if self.begin >= 0 else slice(-1 - self.begin, self.end)


class RankHops(NamedTuple):
    """Hops of one rank: lists by step, int64 (lists, 7), with the rows of all, and the number of rows of each area."""

    lists: IntArray
    rows: IntArray
    sizes: IntArray

    def steps(self, backwards: bool = False) -> Iterator[tuple[int, list[HopList]]]:
        """Lists of each step; both ends of a message have it in the same order among those of a step."""
        by_step = groupby(self.lists.tolist(), key=itemgetter(0))
        steps = [(step, [HopList(*entry[1:]) for entry in some]) for step, some in by_step]
        return reversed(steps) if backwards else iter(steps)


def rank_hops(schedule: AllToAllvSchedule, rank: int, rows: IntArray, begins: IntArray, kinds: IntArray) -> RankHops:
    """List the hops of a rank, of `rows` for each server by mask, from `begins` on.

    `kinds` counts the tokens of each rank for its server by mask, (ranks, 2^GPUs).
    """
    from .hop_kernel import hop_lists

    stages = schedule.partners, schedule.begins, schedule.ends
    streams = schedule.gpus_per_server, schedule.stream_starts, schedule.segments
    return RankHops(*hop_lists(rank, *streams, *stages, rows, begins, kinds))


class OwnRows(NamedTuple):
    """The GPUs that each token of a rank is sent to itself, by server; its chief, and its round."""

    masks: MaskArray
    chiefs: IntArray
    rounds: IntArray


def own_rows(plan: DispatchPlan, rank: int, masks: MaskArray) -> OwnRows:
    """Assign tokens to chiefs and rounds, from the GPUs that want them; uint8 (tokens, servers)."""
    server, gpu = divmod(rank, plan.counts.gpus_per_server)
    chiefs, rounds = np.zeros((2, len(masks)), dtype=np.int64)
    if plan.chiefs is not None:
        elsewhere = masks > 0
        elsewhere[:, server] = False
        numbers = class_numbers(elsewhere)
        by_class = np.argsort(numbers, kind="stable")[(numbers == 0).sum() :]
        routes = plan.routes[plan.routes[:, 0] == rank]
        chiefs[:] = server
        chiefs[by_class], rounds[by_class] = np.repeat(routes[:, 2:4], routes[:, 4], axis=0).T
        relayed = chiefs != server
        keep = (np.arange(masks.shape[1]) == chiefs[:, None]) | (np.arange(masks.shape[1]) == server)
        masks = np.where(relayed[:, None] & ~keep, 0, masks).astype(np.uint8)
        masks[relayed, chiefs[relayed]] |= np.uint8(1 << gpu)
    return OwnRows(masks, chiefs, rounds)


@dataclass
class Route:
    """One rank's part in a dispatch, and the hops of its rounds, of which later ones follow from rows that arrived."""

    plan: DispatchPlan
    rank: int
    own: OwnRows
    homes: IntArray  # ranks of experts
    first_numbers: IntArray  # of each rank's tokens
    choices: int
    peers: Peers
    hops: list[RankHops] = field(default_factory=list)

    @property
    def num_tokens(self) -> int:
        """Number of own tokens."""
        return len(self.own.masks)

    def hops_of(self, number: int, rows: torch.Tensor) -> RankHops:
        """Hops of a round; `rows` are bytes of own rows and of all that have arrived before."""
        if number == len(self.hops):
            first = len(rows) - int(self.hops[-1].sizes[ARRIVED])
            header = rows[first:, : 4 * (1 + self.choices)].cpu().contiguous().numpy().view(np.int32)
            relayed, masks = self._to_relay(header.astype(np.int64))
            self.add_hops(lambda counts: self.peers.swap(counts, rows.device), first + relayed, masks)
        return self.hops[number]

    def add_hops(self, swap: Callable[[IntArray], IntArray], relayed: IntArray, masks: MaskArray) -> None:
        """Add the hops of the next round, with own rows and those held, by masks; `swap` tells ranks their counts."""
        from ...solvers.steps.dispatch import sorted_by_mask

        number, gpus = len(self.hops), self.plan.counts.gpus_per_server
        mine = np.flatnonzero(self.own.rounds == number)
        histogram, order, begins = sorted_by_mask(np.concatenate([self.own.masks[mine], masks]), gpus)
        kinds = swap(np.repeat(histogram, gpus, axis=0))
        rows = np.concatenate([mine, relayed])[order]
        self.hops.append(rank_hops(self.plan.rounds[number], self.rank, rows, begins, kinds))

    def _to_relay(self, header: IntArray) -> tuple[IntArray, MaskArray]:
        """Find which rows that arrived last this rank sends on, and to which GPUs; int64 (rows, 1 + choices)."""
        from ...solvers.steps.dispatch import destination_masks

        servers, gpus = self.plan.counts.servers, self.plan.counts.gpus_per_server
        server, gpu = divmod(self.rank, gpus)
        numbers, chiefs = header[:, 0] % MAX_TOKENS, header[:, 0] // MAX_TOKENS
        homes, gpu_numbers = np.divmod(np.searchsorted(self.first_numbers, numbers, side="right") - 1, gpus)
        relayed = np.flatnonzero((chiefs == server) & (homes != server) & (gpu_numbers == gpu))
        masks = destination_masks(np.ascontiguousarray(header[relayed, 1:]), self.homes, servers, gpus)
        masks[:, server] = 0
        masks[np.arange(len(relayed)), homes[relayed]] = 0
        return relayed, masks


class Peers(NamedTuple):
    """A group, how long messages may take, and the bytes of rows that this rank has sent to each so far."""

    group: Any
    timeout: float | None
    sent: IntArray

    def exchange(
        self, like: torch.Tensor, sends: Iterable[tuple[int, torch.Tensor]], takes: Iterable[tuple[int, int]], what: str
    ) -> list[torch.Tensor]:
        """Send rows to peers, and return so many of others, of the width of `like`; own ones stay as they are."""
        rank = self.group.rank()
        messages: list[tuple[int, bool, torch.Tensor]] = []
        own, contents = [], []
        for peer, rows in sends:
            if peer == rank:
                own.append(rows)
            else:
                messages.append((peer, True, rows))
                self.sent[peer] += rows.numel() * rows.element_size()
        for peer, count in takes:
            if peer == rank:
                contents.append(own.pop(0))
            else:
                contents.append(like.new_empty(count, like.shape[1]))
                messages.append((peer, False, contents[-1]))
        try:
            wait_for_all(post(self.group, TAG, messages), self.timeout)
        except (RuntimeError, ValueError) as error:
            raise ProgramError(f"rank {rank} could not finish {what}: {first_line(error)}") from error
        return contents

    def swap(self, rows: IntArray, device: torch.device) -> IntArray:
        """Send row r to rank r, and return the rows for this rank; they do not count as sent."""
        torch, _ = import_torch()
        own_rows = torch.from_numpy(rows).to(device)
        peers = range(len(rows))
        uncounted = self._replace(sent=self.sent.copy())
        sends, takes = [(peer, own_rows[peer : peer + 1]) for peer in peers], [(peer, 1) for peer in peers]
        received: IntArray = torch.cat(uncounted.exchange(own_rows, sends, takes, "counts of relays")).cpu().numpy()
        return received
