"""Mixture-of-experts dispatch: a multicast all-to-allv that sends a token once to each server with experts of it."""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from ...errors import CertificateError, TopologyError, UnsupportedError
from ...schedules.fast.schedule import AllToAllvSchedule
from ...schedules.fast.two_tier_cost import TwoTierModel, check_model
from ...support.arrays import IntArray, read_only
from ...support.formatting import count_text, percentage_text
from ...support.validation import as_integers, as_whole, shown
from .fast import MAX_BYTES, schedule_all_to_allv

MAX_GPUS = 8
"""GPUs of a server: those that want a token are the bits of a byte."""
TOKEN_BYTES = 2 * 4096
"""A token of 4096 numbers of two bytes."""
MAX_SUBSET_SERVERS = 16
"""Servers of which all subsets are looked at."""


@dataclass(frozen=True, eq=False)
class DispatchCounts:
    """Tokens that GPUs have for other servers.

    Attributes
    ----------
    sends : ndarray of int64, shape (ranks, servers)
        Tokens of a rank that any GPU of a server wants, 0 for its own server.
    leaving : ndarray of int64, shape (ranks,)
        Tokens of a rank that any other server wants, each counted once.
    gpus_per_server : int
        Rank r is GPU ``r % gpus_per_server`` of server ``r // gpus_per_server``.
    classes : ndarray of int64, shape (servers, 2^servers), optional
        Tokens of a server by the set of other servers that want them, as bits.

    Notes
    -----
    Raises `UnsupportedError` if counts are negative, too large, or contradict each other.
    """

    sends: IntArray
    leaving: IntArray
    gpus_per_server: int
    classes: IntArray | None = None

    def __post_init__(self) -> None:
        gpus = as_whole(self.gpus_per_server, "gpus_per_server")
        for name in ("sends", "leaving") if self.classes is None else ("sends", "leaving", "classes"):
            counts = _counts(getattr(self, name), name)
            object.__setattr__(self, name, read_only(counts))
        ranks, servers = self.sends.shape if self.sends.ndim == 2 else (0, 0)
        if not ranks or ranks != servers * gpus or self.leaving.shape != (ranks,):
            raise UnsupportedError(
                f"sends has shape {self.sends.shape} and leaving {self.leaving.shape}; expected (ranks, servers) and "
                f"(ranks,), with {gpus} ranks per server"
            )
        own = np.diagonal(self.by_server)
        if own.any():
            raise UnsupportedError(f"server {own.argmax()} sends to itself; expected tokens for other servers only")
        wrong = (self.leaving < self.sends.max(axis=1)) | (self.leaving > self.sends.sum(axis=1))
        if wrong.any():
            raise UnsupportedError(
                f"{self.leaving[wrong.argmax()]} tokens leave rank {wrong.argmax()}; expected at least the most that "
                "it sends to one server, and at most all that it sends"
            )
        if self.classes is not None and not _fits(self.classes, self.by_server, self.once):
            raise UnsupportedError("classes do not add up to the tokens that servers send; expected those of the same")

    @property
    def servers(self) -> int:
        """Number of servers."""
        return int(self.sends.shape[1])

    @cached_property
    def by_server(self) -> IntArray:
        """Tokens from server to server, D; shape (servers, servers)."""
        return np.asarray(self.sends.reshape(self.servers, self.gpus_per_server, -1).sum(axis=1))

    @cached_property
    def once(self) -> IntArray:
        """Tokens that leave each server; shape (servers,)."""
        return np.asarray(self.leaving.reshape(self.servers, -1).sum(axis=1))


def _counts(values: Any, name: str) -> IntArray:
    counts = _integers(values, name, "whole numbers of 64 bits")
    if counts.size and counts.min() < 0:
        raise UnsupportedError(f"{name} has {counts.min()}; expected numbers of at least 0")
    if sum(counts.ravel().tolist()) >= MAX_BYTES:
        raise UnsupportedError(f"{name} add up to {sum(counts.ravel().tolist())}; expected less than 2^62")
    return counts


def _integers(values: Any, what: str, expected: str) -> IntArray:
    try:
        return np.ascontiguousarray(as_integers(values, what, expected))
    except TopologyError as error:
        raise UnsupportedError(str(error)) from None


def _fits(classes: IntArray, by_server: IntArray, once: IntArray) -> bool:
    servers = len(once)
    if servers > MAX_SUBSET_SERVERS or classes.shape != (servers, 2**servers):
        return False
    wanted = np.arange(2**servers)[:, None] >> np.arange(servers) & 1
    return np.array_equal(classes @ wanted, by_server) and np.array_equal(classes[:, 1:].sum(axis=1), once)


@dataclass(frozen=True)
class DispatchBound:
    """No schedule takes less: a server has to receive, or to send, so many tokens, and each of its GPUs does its part.

    Attributes
    ----------
    server : int
        The server that decides.
    receives : bool
        Whether by what it receives, every token once, or by the tokens that leave it, each of them once.
    tokens : int
        So many.
    gpus_per_server : int
        GPUs, with a NIC each, that share them.
    """

    server: int
    receives: bool
    tokens: int
    gpus_per_server: int

    @property
    def load(self) -> Fraction:
        """Tokens that the busiest GPU sends, or receives, between servers."""
        return Fraction(self.tokens, self.gpus_per_server)

    def verify(self, counts: DispatchCounts) -> None:
        """Check the bound against counts; raises `CertificateError` if they do not show it."""
        one = counts.by_server[:, self.server] if self.receives else counts.once[self.server]
        if self.gpus_per_server != counts.gpus_per_server or int(np.sum(one)) != self.tokens:
            raise CertificateError(f"{self}, which the counts do not show: these are {int(np.sum(one))} tokens")

    def __str__(self) -> str:
        what = "receives" if self.receives else "has to send"
        return f"server {self.server} {what} {count_text(self.tokens, 'token')}"


@dataclass(frozen=True, eq=False)
class DispatchPlan:
    """A direct dispatch: every token is sent once to each server that wants it, in balanced one-to-one stages.

    The combine is the same in reverse: servers add up what their GPUs have of a token, and send one sum.

    Attributes
    ----------
    counts : DispatchCounts
        What is sent.
    schedule : AllToAllvSchedule
        In tokens.  Columns of its traffic are not the GPUs that want tokens, but those of the sender's number in their
        server, which copy what they receive to the others.
    bound : DispatchBound
        Of all schedules.
    """

    counts: DispatchCounts
    schedule: AllToAllvSchedule
    bound: DispatchBound

    @property
    def load(self) -> int:
        """Tokens that the busiest GPU sends or receives between servers."""
        return self.schedule.scale_out_bytes

    @property
    def direct_load(self) -> Fraction:
        """No direct schedule has less: the largest row or column sum of `DispatchCounts.by_server` per GPU."""
        return self.schedule.lower_bound

    @property
    def gap(self) -> Fraction:
        """Relative difference of `load` and the bound of all schedules."""
        return Fraction(self.load) / self.bound.load - 1 if self.load else Fraction(0)

    @property
    def columns_decide(self) -> bool:
        """Whether direct schedules are optimal but for whole tokens: where a server receives as much as any sends."""
        return self.direct_load == self.bound.load

    @cached_property
    def relayed_load(self) -> Fraction | None:
        """Tokens that busiest senders send at least where only servers that want a token relay it; None if unknown."""
        if self.counts.classes is None:
            return None
        from ...solvers.fast.routing_counts import heaviest_subset

        sends, servers = heaviest_subset(self.counts.once, self.counts.classes)
        return Fraction(sends, servers * self.counts.gpus_per_server)

    def optimum(self, model: TwoTierModel, token_bytes: int) -> Fraction:
        """Time in µs that the bound takes on a model's links between servers."""
        check_model(model)
        return self.bound.load * as_whole(token_bytes, "token_bytes") / Fraction(model.scale_out) / 1000

    def verify(self) -> None:
        """Check that the schedule moves what is counted, and the bound; raises `CertificateError` otherwise."""
        self.schedule.verify()
        self.bound.verify(self.counts)
        n, m = self.counts.servers, self.counts.gpus_per_server
        shape = (self.schedule.servers, self.schedule.gpus_per_server)
        if shape != (n, m) or not np.array_equal(
            self.schedule.traffic.reshape(n * m, n, m).sum(axis=2), self.counts.sends
        ):
            raise CertificateError("the schedule of the dispatch is of other tokens than its counts")

    def __str__(self) -> str:
        quality = f"{percentage_text(self.gap)} above the bound of all schedules"
        if self.gap == 0:
            quality = "optimal"
        elif not self.columns_decide:
            quality += ", as servers send unequally"
        return (
            f"dispatch of {self.schedule.size_text}: {count_text(self.load, 'token')} per GPU between servers, "
            f"{quality}; {self.bound}"
        )


def count_dispatch(
    indices: Sequence[npt.ArrayLike], placement: npt.ArrayLike, *, servers: int, gpus_per_server: int
) -> DispatchCounts:
    """Count what the dispatch of routed tokens sends between servers.

    Classes of tokens are counted if there are at most 16 servers.  Raises `UnsupportedError` if an index is no expert,
    or a placement no rank.

    Parameters
    ----------
    indices : sequence of array_like of integers, shape (tokens, choices)
        For each rank the experts of its tokens.
    placement : array_like of integers, shape (experts,)
        The rank that has each expert.
    servers, gpus_per_server : int
        Rank r is GPU ``r % gpus_per_server`` of server ``r // gpus_per_server``; at most 8 GPUs.

    Examples
    --------
    Both tokens of GPU 0 go to both GPUs of the other server, and are sent there once:

    >>> nothing = np.empty((0, 2), dtype=np.int64)
    >>> counts = count_dispatch([[[2, 3], [2, 3]], *[nothing] * 3], range(4), servers=2, gpus_per_server=2)
    >>> counts.by_server.tolist()
    [[0, 2], [0, 0]]
    """
    n, m = as_whole(servers, "servers"), as_whole(gpus_per_server, "gpus_per_server", most=MAX_GPUS)
    if len(indices) != n * m:
        raise UnsupportedError(f"there are indices of {len(indices)} ranks; expected {n * m}, one array for each")
    homes = as_placement(placement, n * m)
    sends = np.zeros((n * m, n), dtype=np.int64)
    leaving = np.zeros(n * m, dtype=np.int64)
    classes = np.zeros((n, 2**n), dtype=np.int64) if n <= MAX_SUBSET_SERVERS else None
    for rank, chosen in enumerate(indices):
        elsewhere = _masks(as_indices(chosen, len(homes)), homes, n, m) > 0
        elsewhere[:, rank // m] = False
        sends[rank], leaving[rank] = elsewhere.sum(axis=0), elsewhere.any(axis=1).sum()
        if classes is not None:
            classes[rank // m] += np.bincount(elsewhere @ (1 << np.arange(n)), minlength=2**n)
    if classes is not None:
        classes[:, 0] = 0  # what stays
    return DispatchCounts(sends, leaving, m, classes)


def _masks(indices: IntArray, homes: IntArray, servers: int, gpus: int) -> npt.NDArray[np.uint8]:
    from ...solvers.fast.routing_counts import destination_masks

    return destination_masks(indices, homes, servers, gpus)


def as_indices(values: Any, experts: int) -> IntArray:
    """Read routing indices, shape (tokens, choices); `UnsupportedError` if one is no expert."""
    indices = _integers(values, "indices", "the numbers of experts")
    if indices.ndim != 2:
        raise UnsupportedError(f"indices have shape {indices.shape}; expected (tokens, choices)")
    wrong = np.argwhere((indices < 0) | (indices >= experts))
    if wrong.size:
        token, choice = wrong[0].tolist()
        raise UnsupportedError(
            f"indices[{token}, {choice}] is {indices[token, choice]}; expected an expert from 0 to {experts - 1}"
        )
    return indices


def as_placement(values: Any, ranks: int) -> IntArray:
    """Read the ranks of experts; `UnsupportedError` if one is no rank."""
    homes = _integers(values, "placement", "the rank of each expert")
    if homes.ndim != 1 or not homes.size:
        raise UnsupportedError(f"placement has shape {homes.shape}; expected one rank for each expert")
    wrong = np.flatnonzero((homes < 0) | (homes >= ranks))
    if wrong.size:
        raise UnsupportedError(f"placement[{wrong[0]}] is {homes[wrong[0]]}; expected a rank from 0 to {ranks - 1}")
    return homes


def schedule_dispatch(
    counts: DispatchCounts,
    *,
    token_bytes: int = TOKEN_BYTES,
    stages: str | None = None,
    max_stage_tokens: int | None = None,
) -> DispatchPlan:
    """Plan a dispatch from counts alone; the plan is a deterministic function of the arguments.

    Its bound holds for all schedules.

    Parameters
    ----------
    counts : DispatchCounts
        As `count_dispatch` returns them.
    token_bytes : int
        What the defaults of the others are predicted with.
    stages, max_stage_tokens : str and int, optional
        As `schedule_all_to_allv` takes them, with stages in tokens.

    Notes
    -----
    Server j has to receive every token that it wants, and server i to send every token that leaves it, once at least.
    A direct schedule sends tokens of i once to each server, and takes what the larger of row and column sums says.
    Both are equal if a column sum is the largest, as always where all servers send equally much.

    Examples
    --------
    >>> sends = np.array([[0, 4], [0, 0], [2, 0], [0, 0]])
    >>> counts = DispatchCounts(sends, sends.sum(axis=1), gpus_per_server=2)
    >>> plan = schedule_dispatch(counts)
    >>> print(plan)
    dispatch of 2 servers of 2 GPUs, 1 stage: 2 tokens per GPU between servers, optimal; server 1 receives 4 tokens
    >>> plan.gap
    Fraction(0, 1)
    """
    if not isinstance(counts, DispatchCounts):
        raise UnsupportedError(f"counts are {shown(counts)}; expected DispatchCounts, as count_dispatch returns them")
    n, m = counts.servers, counts.gpus_per_server
    traffic = np.zeros((n * m, n, m), dtype=np.int64)
    ranks = np.arange(n * m)
    traffic[ranks, :, ranks % m] = counts.sends
    unit = as_whole(token_bytes, "token_bytes")
    cap = None if max_stage_tokens is None else as_whole(max_stage_tokens, "max_stage_tokens") * unit
    schedule = schedule_all_to_allv(
        traffic.reshape(n * m, n * m),
        servers=n,
        gpus_per_server=m,
        stages=stages,
        max_stage_bytes=cap,
        unit_bytes=unit,
    )
    received = counts.by_server.sum(axis=0)
    receives = bool(received.max() >= counts.once.max())
    server = int(np.argmax(received if receives else counts.once))
    tokens = int((received if receives else counts.once)[server])
    return DispatchPlan(counts, schedule, DispatchBound(server, receives, tokens, m))
