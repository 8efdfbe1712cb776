"""Rounds of a dispatch on one rank: which rows it sends in each, of its own and of those that it relays.

A row begins with the token's number among those of all ranks, and above that its chief, the server that sends it on;
then come its experts.  In the chief's server a relayed row goes to the GPU of the number of the token's rank, besides
those that want it, and from there in the next round to all other servers that do.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ....planners.pairs.dispatch import DispatchPlan
from ....planners.pairs.dispatch_counts import class_numbers
from ....support.arrays import IntArray
from .hops import ARRIVED, OwnTokens, RankHops, rank_hops
from .messages import Peers

if TYPE_CHECKING:
    import torch

    from ....solvers.fast.routing_counts import MaskArray

NUMBER_BITS = 28
MAX_TOKENS = 2**NUMBER_BITS
MAX_RELAY_SERVERS = 8
"""The bits above a number, but for the sign, tell so many chiefs."""


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
            held, masks = self._to_relay(header.astype(np.int64))
            self.add_hops(lambda counts: self.peers.swap(counts, rows.device), first + held, masks)
        return self.hops[number]

    def add_hops(self, swap: Callable[[IntArray], IntArray], held: IntArray, masks: MaskArray) -> None:
        """Add the hops of the next round, with own rows and those held, by masks; `swap` tells ranks their counts."""
        from ....solvers.fast.routing_counts import sorted_by_mask

        number, gpus = len(self.hops), self.plan.counts.gpus_per_server
        mine = np.flatnonzero(self.own.rounds == number)
        histogram, order, begins = sorted_by_mask(np.concatenate([self.own.masks[mine], masks]), gpus)
        kinds = swap(np.repeat(histogram, gpus, axis=0))
        rows = np.concatenate([mine, held])[order]
        self.hops.append(rank_hops(self.plan.rounds[number], self.rank, OwnTokens(rows, begins), kinds))

    def _to_relay(self, header: IntArray) -> tuple[IntArray, MaskArray]:
        """Find which rows that arrived last this rank sends on, and to which GPUs; int64 (rows, 1 + choices)."""
        from ....solvers.fast.routing_counts import destination_masks

        servers, gpus = self.plan.counts.servers, self.plan.counts.gpus_per_server
        server, gpu = divmod(self.rank, gpus)
        numbers, chiefs = header[:, 0] % MAX_TOKENS, header[:, 0] // MAX_TOKENS
        homes, gpu_numbers = np.divmod(np.searchsorted(self.first_numbers, numbers, side="right") - 1, gpus)
        held = np.flatnonzero((chiefs == server) & (homes != server) & (gpu_numbers == gpu))
        masks = destination_masks(np.ascontiguousarray(header[held, 1:]), self.homes, servers, gpus)
        masks[:, server] = 0
        masks[np.arange(len(held)), homes[held]] = 0
        return held, masks
