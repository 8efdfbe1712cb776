"""Counts of routed tokens: how many GPUs have for each server, and for each set of servers."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from ...errors import TopologyError, UnsupportedError
from ...support.arrays import IntArray, read_only
from ...support.validation import as_integers, as_whole
from .fast import MAX_BYTES

MAX_GPUS = 8
"""GPUs of a server: those that want a token are the bits of a byte."""
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
    classes : ndarray of int64, shape (ranks, 2^servers), optional
        Tokens of a rank by the set of other servers that want them, as bits.

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
        faults = (self.leaving < self.sends.max(axis=1)) | (self.leaving > self.sends.sum(axis=1))
        if faults.any():
            raise UnsupportedError(
                f"{self.leaving[faults.argmax()]} tokens leave rank {faults.argmax()}; expected at least the most that "
                "it sends to one server, and at most all that it sends"
            )
        if self.classes is not None and not _fits(self.classes, self.sends, self.leaving):
            raise UnsupportedError("classes do not add up to the tokens that ranks send; expected those of the same")

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


def _fits(classes: IntArray, sends: IntArray, leaving: IntArray) -> bool:
    ranks, servers = sends.shape
    if servers > MAX_SUBSET_SERVERS or classes.shape != (ranks, 2**servers):
        return False
    destinations = np.arange(2**servers)[:, None] >> np.arange(servers) & 1
    return np.array_equal(classes @ destinations, sends) and np.array_equal(classes[:, 1:].sum(axis=1), leaving)


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
    from ...solvers.fast.dispatch import destination_masks

    n, m = as_whole(servers, "servers"), as_whole(gpus_per_server, "gpus_per_server", most=MAX_GPUS)
    if len(indices) != n * m:
        raise UnsupportedError(f"there are indices of {len(indices)} ranks; expected {n * m}, one array for each")
    homes = as_placement(placement, n * m)
    sends = np.zeros((n * m, n), dtype=np.int64)
    leaving = np.zeros(n * m, dtype=np.int64)
    classes = np.zeros((n * m, 2**n), dtype=np.int64) if n <= MAX_SUBSET_SERVERS else None
    for rank, experts in enumerate(indices):
        elsewhere = destination_masks(as_indices(experts, len(homes)), homes, n, m) > 0
        elsewhere[:, rank // m] = False
        sends[rank], leaving[rank] = elsewhere.sum(axis=0), elsewhere.any(axis=1).sum()
        if classes is not None:
            classes[rank] = class_counts(elsewhere)
    return DispatchCounts(sends, leaving, m, classes)


def class_numbers(elsewhere: npt.NDArray[np.bool_]) -> IntArray:
    """Number the sets of other servers that want tokens; bool (tokens, servers) to int64 (tokens,)."""
    return np.asarray(elsewhere @ (1 << np.arange(elsewhere.shape[1])), dtype=np.int64)


def class_counts(elsewhere: npt.NDArray[np.bool_]) -> IntArray:
    """Count tokens that leave by the set of servers that want them; bool (tokens, servers) to int64 (2^servers,)."""
    counts = np.bincount(class_numbers(elsewhere), minlength=2 ** elsewhere.shape[1])
    counts[0] = 0  # what stays
    return counts


def as_indices(values: Any, experts: int) -> IntArray:
    """Read routing indices, shape (tokens, choices); `UnsupportedError` if one is no expert."""
    indices = _integers(values, "indices", "the numbers of experts")
    if indices.ndim != 2:
        raise UnsupportedError(f"indices have shape {indices.shape}; expected (tokens, choices)")
    faults = np.argwhere((indices < 0) | (indices >= experts))
    if faults.size:
        token, choice = faults[0].tolist()
        raise UnsupportedError(
            f"indices[{token}, {choice}] is {indices[token, choice]}; expected an expert from 0 to {experts - 1}"
        )
    return indices


def as_placement(values: Any, ranks: int) -> IntArray:
    """Read the ranks of experts; `UnsupportedError` if one is no rank."""
    homes = _integers(values, "placement", "the rank of each expert")
    if homes.ndim != 1 or not homes.size:
        raise UnsupportedError(f"placement has shape {homes.shape}; expected one rank for each expert")
    faults = np.flatnonzero((homes < 0) | (homes >= ranks))
    if faults.size:
        raise UnsupportedError(f"placement[{faults[0]}] is {homes[faults[0]]}; expected a rank from 0 to {ranks - 1}")
    return homes
