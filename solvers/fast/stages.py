"""FAST schedule in one compiled call: balance tiles, decompose, split matchings into stages, sort.

A single call keeps online planning within microseconds.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ...support.arrays import IntArray
from ...support.compiling.kernels import kernel
from .birkhoff import matchings
from .tile_balance import peer_bytes, stream_segments

Stages = tuple[IntArray, IntArray, IntArray, IntArray]

LIMIT = 2**62  # upper limit of the total number of bytes
MAX_PLACES = 2**27  # limit of stages times servers: 1 GiB each for partners, begins and ends
NEGATIVE, TOO_LARGE, TOO_MANY = 1, 2, 3
"""Faults: an entry below 0, a total beyond `LIMIT`, stages times servers beyond `MAX_PLACES`."""


@kernel
def staged_exchange(
    traffic: IntArray, servers: int, gpus: int, way: int, cap: int
) -> tuple[int, IntArray, IntArray, IntArray, IntArray, IntArray, IntArray]:
    """Plan an all-to-allv on servers of equally many GPUs, in stages of `cap` bytes; `traffic` int64 (ranks, ranks)."""
    nothing, no_rows = np.empty(0, dtype=np.int64), np.empty((0, 0), dtype=np.int64)
    fault = fault_of(traffic)
    if fault:
        return fault, nothing, no_rows, nothing, no_rows, no_rows, no_rows
    sums = np.empty((servers * gpus, servers), dtype=np.int64)
    longest = np.empty((servers, servers), dtype=np.int64)
    peer_bytes(traffic, servers, gpus, sums, longest)
    found, weights = matchings(longest, way)
    pieces = number_of_stages(weights, cap)
    if pieces > MAX_PLACES // servers:
        return TOO_MANY, nothing, no_rows, nothing, no_rows, no_rows, no_rows
    sizes, partners, begins, ends = ordered_stages(longest, found, weights, pieces, cap)
    starts = np.empty(servers * servers * gpus + 1, dtype=np.int64)
    segments = np.empty((servers * (servers - 1) * gpus * (gpus + 2), 4), dtype=np.int64)
    count = stream_segments(traffic, servers, gpus, sums, starts, segments)
    return 0, starts, segments[:count], sizes, partners, begins, ends


@kernel
def fault_of(traffic: IntArray) -> int:
    """Return `NEGATIVE` or `TOO_LARGE` for such traffic, else 0; small entries need no sum."""
    entries = traffic.ravel()
    every = 0
    for entry in entries:
        every |= int(entry)
    if every < 0:
        return NEGATIVE
    if every >= LIMIT // max(1, traffic.size):
        total = 0
        for entry in entries:
            if entry > LIMIT - 1 - total:
                return TOO_LARGE
            total += int(entry)
    return 0


@kernel
def number_of_stages(weights: IntArray, cap: int) -> int:
    """Count the stages of at most `cap` bytes that matchings are split into."""
    stages = 0
    for weight in weights:
        stages += (weight - 1) // cap + 1
    return stages


@kernel
def ordered_stages(longest: IntArray, found: npt.NDArray[np.int16], weights: IntArray, pieces: int, cap: int) -> Stages:
    """Split matchings into stages of at most `cap` bytes, sorted by size, and assign each stream's bytes in order."""
    servers = len(longest)
    lengths, matching = np.empty(pieces, dtype=np.int64), np.empty(pieces, dtype=np.int64)
    at = 0
    for number, weight in enumerate(weights):
        parts = (weight - 1) // cap + 1
        for part in range(parts):
            lengths[at] = (weight + part) // parts
            matching[at] = number
            at += 1
    order = np.argsort(lengths, kind="mergesort")
    sizes = np.empty(pieces, dtype=np.int64)
    partners = np.empty((pieces, servers), dtype=np.int64)
    begins, ends = np.empty((pieces, servers), dtype=np.int64), np.empty((pieces, servers), dtype=np.int64)
    done = np.zeros((servers, servers), dtype=np.int64)
    for stage, piece in enumerate(order):
        size = lengths[piece]
        sizes[stage] = size
        columns = found[matching[piece]]
        for server in range(servers):
            other = np.int64(columns[server])
            begin = done[server, other]
            end = min(begin + size, longest[server, other])
            done[server, other] = end
            partners[stage, server] = other if end > begin else -1
            begins[stage, server] = begin
            ends[stage, server] = end
    return sizes, partners, begins, ends
