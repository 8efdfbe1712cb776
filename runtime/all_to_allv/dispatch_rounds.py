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
from ...support.kernels import kernel, runtime_kernel
from ..execution.agreement import first_line, post, wait_for_all
from ..execution.arguments import import_torch
from ..execution.call_queue import TAG
from .steps import BYTES, FIRST, ORIGIN, as_int64, next_pieces

if TYPE_CHECKING:
    from collections.abc import Iterable

    import torch

    from ...solvers.steps.dispatch import MaskArray


Parts = list["torch.Tensor"]
"""Tensors with the same number of rows, which travel together."""
OWN, ARRIVED = map(as_int64, range(2))
"""Areas of rows: own rows and arrived rows; 2 s + 2 and 2 s + 3 are the rows that a rank sends and gets in stage s."""
TAKES, SENDS = map(as_int64, range(2))  # Kinds of lists
ENTRIES, ROWS, ARRIVALS = map(as_int64, range(3))  # Counters in `Lists.filled`
FEW = 4  # Lists of a hop besides those of each GPU
MAX_TOKENS = 2**28  # Which leaves, without the sign, the bits for `MAX_RELAY_SERVERS` chiefs
MAX_RELAY_SERVERS = 8


def packed(parts: Parts) -> torch.Tensor:
    """Join the bytes of parts, row by row; shape (rows, bytes)."""
    torch, _ = import_torch()
    # By way of one dimension, as torch has strides of its own for matrices without rows.
    flat = [(part.contiguous().view(-1).view(torch.uint8), part.element_size() * part.shape[1]) for part in parts]
    return torch.cat([data.view(len(parts[0]), width) for data, width in flat], dim=1)  # type: ignore[no-any-return]


def unpacked(rows: torch.Tensor, likes: Parts) -> Parts:
    """Divide rows of bytes into parts of the types and widths of others."""
    torch, _ = import_torch()
    columns = torch.split(rows, [like.shape[1] * like.element_size() for like in likes], dim=1)
    # A matrix of one row or none counts as contiguous, but may begin where no value of the type may.
    aligned = [part.clone(memory_format=torch.contiguous_format).view(-1) for part in columns]
    return [part.view(like.dtype).view(len(rows), like.shape[1]) for part, like in zip(aligned, likes, strict=True)]


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
    begins = [0, *accumulate(int(hops.sizes[ARRIVED]) for hops in route.hops)]
    own = route.num_tokens
    sums = _zeros(parts, own + begins[-2])  # What arrives in the last round is sent on by nobody.
    for number in reversed(range(len(route.hops))):
        begin, end = begins[number : number + 2]
        contributions = [part[begin:end] for part in parts]
        if number < len(route.hops) - 1:
            pairs = zip(sums, contributions, strict=True)
            contributions = [(one[own + begin : own + end] + part).to(part.dtype) for one, part in pairs]
        _back(route, route.hops[number], contributions, sums)
    return [one[:own].to(part.dtype) for one, part in zip(sums, parts, strict=True)]


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
    """List a rank's hops of rows for each server, from `begins` on; `kinds` as for `hop_lists`."""
    streams = schedule.gpus_per_server, schedule.stream_starts, schedule.segments
    return RankHops(*hop_lists(rank, *streams, schedule.partners, schedule.begins, schedule.ends, rows, begins, kinds))


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

        counts = self.plan.counts
        server, gpu = divmod(self.rank, gpus := counts.gpus_per_server)
        numbers, chiefs = header[:, 0] % MAX_TOKENS, header[:, 0] // MAX_TOKENS
        homes, gpu_numbers = np.divmod(np.searchsorted(self.first_numbers, numbers, side="right") - 1, gpus)
        relayed = np.flatnonzero((chiefs == server) & (homes != server) & (gpu_numbers == gpu))
        masks = destination_masks(np.ascontiguousarray(header[relayed, 1:]), self.homes, counts.servers, gpus)
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
        own_rows = torch.from_numpy(rows).to(device).split(1)
        uncounted = self._replace(sent=self.sent.copy())
        sends, takes = enumerate(own_rows), ((peer, 1) for peer in range(len(rows)))
        received = torch.cat(uncounted.exchange(own_rows[0], sends, takes, "counts of relays"))
        return received.cpu().numpy()  # type: ignore[no-any-return]


class Streams(NamedTuple):
    """The streams of a schedule, how far they have come, and the pieces of one in a stage."""

    starts: IntArray
    segments: IntArray
    at: IntArray
    done: IntArray
    pieces: IntArray


class Lists(NamedTuple):
    """Lists of rows: the step, then the fields of `HopList`."""

    rank: int
    entries: IntArray
    rows: IntArray
    filled: IntArray  # how much of these two there is, and how many rows arrive


@runtime_kernel
def hop_lists(
    rank: int, gpus: int, starts: IntArray, segments: IntArray, partners: IntArray, begins: IntArray, ends: IntArray,
    tokens: IntArray, token_begins: IntArray, kinds: IntArray,
) -> tuple[IntArray, IntArray, IntArray]:  # fmt: skip
    """Return the lists of a rank, as in `Lists`, by step, then as both ends have them; their rows; the sizes of areas.

    Shapes: `tokens` for each server by mask, from ``token_begins[server]`` on; `kinds`, the tokens of each rank for
    this server by mask, (ranks, 2^GPUs).
    """
    (stages, servers), server = partners.shape, rank // gpus
    marks = np.zeros((kinds.shape[0], kinds.shape[1] + 1), dtype=np.int64)  # Where the tokens of each mask begin
    for origin in range(len(kinds)):
        marks[origin, 1:] = np.cumsum(kinds[origin])
    # Room for all lists: rows of own tokens for each GPU, and rows of each stage for each GPU of the server.
    longest = np.diff(starts).max()
    pieces = np.empty((longest + 1, 4), dtype=np.int64)
    streams = Streams(starts, segments, starts[:-1].copy(), np.zeros(len(starts) - 1, dtype=np.int64), pieces)
    lasting = (ends - begins)[:, server].sum() + marks[:, -1].sum()
    lists = Lists(
        rank,
        np.empty(((3 * stages + 1) * (2 * gpus + FEW), 7), dtype=np.int64),
        np.empty(len(tokens) * (gpus + 1) + (gpus + 1) * lasting, dtype=np.int64),
        np.zeros(3, dtype=np.int64),
    )
    sizes = np.zeros(2 * stages + 2, dtype=np.int64)
    # Hops inside the server without a stage, then the three hops of each stage: to proxies, between servers, to GPUs.
    _stay(lists, gpus, tokens[token_begins[server] :], marks)
    for stage in range(stages):
        other, leaving, landing = partners[stage, server], 2 * stage + 2, 2 * stage + 3
        if other >= 0:
            left, first = ends[stage, server] - begins[stage, server], (server * servers + other) * gpus
            sizes[leaving] = _to_proxies(lists, streams, stage, first, gpus, left, tokens[token_begins[other] :])
            if sizes[leaving]:
                _list(lists, stage + 1, leaving, landing, SENDS, other * gpus + rank % gpus, -1, sizes[leaving])
        for sender in range(servers):
            if partners[stage, sender] == server:
                left, first = ends[stage, sender] - begins[stage, sender], (sender * servers + server) * gpus
                sizes[landing] = _spread(lists, streams, stage, first, gpus, left, marks)
                if sizes[landing]:
                    _list(lists, stage + 1, leaving, landing, TAKES, sender * gpus + rank % gpus, -1, sizes[landing])
    sizes[ARRIVED] = lists.filled[ARRIVALS]
    entries = lists.entries[: lists.filled[ENTRIES]]
    return entries[np.argsort(entries[:, 0], kind="mergesort")], lists.rows[: lists.filled[ROWS]], sizes


@kernel
def _list(lists: Lists, step: int, source: int, target: int, kind: int, peer: int, begin: int, end: int) -> None:
    """Add a list if it has rows."""
    if end > max(begin, -1 - begin):
        for column, value in enumerate((step, source, target, kind, peer, begin, end)):
            lists.entries[lists.filled[ENTRIES], column] = value
        lists.filled[ENTRIES] += 1


@kernel
def _append(lists: Lists, marks: IntArray, first: int, values: IntArray, bit: int) -> None:
    """Append, to the rows, the values of those tokens of an origin from the first on whose masks have a bit."""
    mask, at = np.searchsorted(marks, first, side="right") - 1, 0
    while at < len(values):
        end = min(len(values), marks[mask + 1] - first)
        if mask >> bit & 1:
            lists.rows[lists.filled[ROWS] : lists.filled[ROWS] + end - at] = values[at:end]
            lists.filled[ROWS] += end - at
        at, mask = end, mask + 1


@kernel
def _arrive(lists: Lists, marks: IntArray, first: int, after: int, bit: int) -> None:
    """Count those tokens of an origin from the first on whose masks have a bit."""
    mask = np.searchsorted(marks, first, side="right") - 1
    while first < after:
        end = min(after, marks[mask + 1])
        if mask >> bit & 1:
            lists.filled[ARRIVALS] += end - first
        first, mask = end, mask + 1


@kernel
def _stay(lists: Lists, gpus: int, tokens: IntArray, marks: IntArray) -> None:
    """List the rows that move inside the server without a stage."""
    gpu, first = lists.rank % gpus, lists.rank - lists.rank % gpus
    for at in range(gpus):
        before, peer = lists.filled.copy(), first + at
        _append(lists, marks[lists.rank], 0, tokens[: marks[lists.rank, -1]], at)
        _list(lists, 0, OWN, ARRIVED, SENDS, peer, before[ROWS], lists.filled[ROWS])
        _arrive(lists, marks[peer], 0, marks[peer, -1], gpu)
        _list(lists, 0, OWN, ARRIVED, TAKES, peer, -1 - before[ARRIVALS], lists.filled[ARRIVALS])


@kernel
def _to_proxies(lists: Lists, streams: Streams, stage: int, stream: int, gpus: int, left: int, tokens: IntArray) -> int:
    """List own tokens for proxies, and tokens that others hand to this rank; return how many it then has."""
    area, first, size = 2 * stage + 2, lists.rank - lists.rank % gpus, 0
    for lane in range(gpus):
        proxy, count = first + lane, next_pieces(streams, stream + lane, left)
        begin = lists.filled[ROWS]
        for piece in streams.pieces[:count]:
            if piece[ORIGIN] == lists.rank:
                _append_all(lists, tokens[piece[FIRST] : piece[FIRST] + piece[BYTES]])
        _list(lists, stage, OWN, area, SENDS, proxy, begin, lists.filled[ROWS])
        if proxy == lists.rank:
            size = streams.pieces[:count, BYTES].sum()
            for origin in range(first, first + gpus):
                begin, place = lists.filled[ROWS], 0
                for piece in streams.pieces[:count]:
                    if piece[ORIGIN] == origin:
                        _append_all(lists, np.arange(place, place + piece[BYTES]))
                    place += piece[BYTES]
                _list(lists, stage, OWN, area, TAKES, origin, begin, lists.filled[ROWS])
    return size


@kernel
def _append_all(lists: Lists, values: IntArray) -> None:
    lists.rows[lists.filled[ROWS] : lists.filled[ROWS] + len(values)] = values
    lists.filled[ROWS] += len(values)


@kernel
def _spread(lists: Lists, streams: Streams, stage: int, stream: int, gpus: int, left: int, marks: IntArray) -> int:
    """List rows that this rank received for others in a stage, and rows of peers for it; return their number here."""
    area, first, size = 2 * stage + 3, lists.rank - lists.rank % gpus, 0
    for lane in range(gpus):
        holder, count = first + lane, next_pieces(streams, stream + lane, left)
        if holder == lists.rank:
            size = streams.pieces[:count, BYTES].sum()
            slots = np.arange(size)
            for at in range(gpus):
                begin, place = lists.filled[ROWS], 0
                for piece in streams.pieces[:count]:
                    _append(lists, marks[piece[ORIGIN]], piece[FIRST], slots[place : place + piece[BYTES]], at)
                    place += piece[BYTES]
                _list(lists, stage + 2, area, ARRIVED, SENDS, first + at, begin, lists.filled[ROWS])
        arrived = lists.filled[ARRIVALS]
        for piece in streams.pieces[:count]:
            _arrive(lists, marks[piece[ORIGIN]], piece[FIRST], piece[FIRST] + piece[BYTES], lists.rank - first)
        _list(lists, stage + 2, area, ARRIVED, TAKES, holder, -1 - arrived, lists.filled[ARRIVALS])
    return size
