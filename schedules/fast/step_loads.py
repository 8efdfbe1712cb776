"""Loads of the merged steps of an all-to-allv schedule, and the scratch that they take.

In step t stage t is balanced, stage t - 1 goes between servers and stage t - 2 is redistributed, all at once.  What
stays inside a server is spread over the steps in proportion to the bytes between servers, the room that they leave.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ...support.arrays import IntArray
from ...support.compiling.kernels import kernel

PARTS = 64  # what stays inside a server is cut into at most so many parts


class StepLoads(NamedTuple):
    """Bytes of the steps, shape (steps,), of the busiest GPU inside its server, sent or received; scratch, (ranks,)."""

    busiest: IntArray
    scratch: IntArray


@kernel
def local_shares(stage_bytes: IntArray) -> IntArray:
    """Return how many `PARTS` of the local bytes have gone before each step, and after all; int64 (stages + 3,)."""
    stages = len(stage_bytes)
    shares = np.zeros(stages + 3, dtype=np.int64)
    part, done = max(1, stage_bytes.sum() // PARTS), 0
    for stage in range(stages):
        done += stage_bytes[stage]
        shares[stage + 2] = min(PARTS, done // part)
    shares[stages + 1 :] = PARTS
    return shares


@kernel
def part_of(cell: int, share: int) -> int:
    """Bytes of a cell that have gone once so many parts of the local bytes have."""
    return cell // PARTS * share + cell % PARTS * share // PARTS


@kernel
def step_loads(
    traffic: IntArray,
    firsts: IntArray,
    gpus: int,
    starts: IntArray,
    segments: IntArray,
    stage_bytes: IntArray,
    partners: IntArray,
    begins: IntArray,
    ends: IntArray,
) -> StepLoads:
    """Follow all streams through all steps; `firsts`, int64 (servers + 1,), has GPU 0 of each server, not of parts."""
    ranks, stages, parts = len(traffic), len(partners), len(traffic) // gpus
    shares = local_shares(stage_bytes)
    busiest = np.zeros(stages + 2, dtype=np.int64)
    loads = np.zeros((3, 2, ranks), dtype=np.int64)  # by step modulo 3: sent, received
    held, most = np.zeros((2, ranks), dtype=np.int64), np.zeros((2, 2, ranks), dtype=np.int64)  # proxied, landed
    at, done = starts[:-1].copy(), np.zeros(len(starts) - 1, dtype=np.int64)
    for step in range(stages + 2):
        now, after = loads[step % 3], loads[(step + 2) % 3]
        if step < stages:
            held[:] = 0
            for server in range(parts):
                other = partners[step, server]
                if other >= 0:
                    for gpu in range(gpus):
                        _walk(
                            (server * parts + other) * gpus + gpu,
                            server * gpus + gpu,
                            other * gpus + gpu,
                            ends[step, server] - begins[step, server],
                            starts,
                            segments,
                            at,
                            done,
                            now,
                            after,
                            held,
                        )
            most[step % 2] = np.maximum(most[step % 2], held)
        if shares[step] < shares[step + 1]:
            _add_local(traffic, firsts, shares[step], shares[step + 1], now)
        busiest[step] = now.max()
        now[:] = 0
    return StepLoads(busiest, most.sum(axis=0).sum(axis=0))


@kernel
def _walk(
    stream: int,
    proxy: int,
    peer: int,
    left: int,
    starts: IntArray,
    segments: IntArray,
    at: IntArray,
    done: IntArray,
    now: IntArray,
    after: IntArray,
    held: IntArray,
) -> None:
    """Add the next `left` bytes of a stream to the loads of its balancing and redistribution, and to what is held."""
    while left and at[stream] < starts[stream + 1]:
        origin, final, _, whole = segments[at[stream]]
        length = min(left, whole - done[stream])
        if origin != proxy:
            now[0, origin] += length
            now[1, proxy] += length
            held[0, proxy] += length
        if final != peer:
            after[0, peer] += length
            after[1, final] += length
            held[1, peer] += length
        left -= length
        done[stream] += length
        if done[stream] == whole:
            at[stream] += 1
            done[stream] = 0


@kernel
def _add_local(traffic: IntArray, firsts: IntArray, begin: int, end: int, now: IntArray) -> None:
    """Add what stays inside servers, from one share of it to another."""
    for server in range(len(firsts) - 1):
        for source in range(firsts[server], firsts[server + 1]):
            for final in range(firsts[server], firsts[server + 1]):
                if source != final:
                    length = part_of(traffic[source, final], end) - part_of(traffic[source, final], begin)
                    now[0, source] += length
                    now[1, final] += length
