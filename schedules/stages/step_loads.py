"""Loads of the merged steps of an all-to-allv schedule, and the scratch that they take.

In step t stage t is balanced, stage t - 1 goes between servers and stage t - 2 is redistributed, all at once.  What
stays inside a server is spread over the steps in proportion to the bytes between servers, the room that they leave.
"""

from typing import NamedTuple

import numpy as np

from ...support.arrays import IntArray
from ...support.kernels import kernel, runtime_kernel

PARTS = 64  # parts at most that the local bytes of a server are cut into

Streams = tuple[IntArray, IntArray, IntArray, IntArray]
"""Where streams start, their segments, and of each the segment that it has come to and the bytes of that."""
Steps = tuple[IntArray, IntArray, IntArray, IntArray]
"""Loads by step modulo 3, of GPUs (3, 2, ranks), sent and received, and from each to each place in its server,
(3, ranks, places); the place of each rank; and the largest loads of GPUs and links, (2, steps)."""


class StepLoads(NamedTuple):
    """Most bytes in a step, (steps,), to or from a GPU inside its server, and between two; scratch, (ranks,)."""

    busiest: IntArray
    busiest_link: IntArray
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


@runtime_kernel
def step_loads(
    traffic: IntArray,
    firsts: IntArray,
    lanes: IntArray,
    starts: IntArray,
    segments: IntArray,
    stage_bytes: IntArray,
    partners: IntArray,
    begins: IntArray,
    ends: IntArray,
) -> StepLoads:
    """Follow all streams through all steps.

    Shapes: `firsts`, int64 (servers + 1,), has GPU 0 of each server, not of parts; `lanes`, int64 (parts, lanes).
    """
    ranks, stages, (parts, width) = len(traffic), len(partners), lanes.shape
    places = np.diff(firsts).max()
    place = np.empty(ranks, dtype=np.int64)  # in its server
    for server in range(len(firsts) - 1):
        place[firsts[server] : firsts[server + 1]] = np.arange(firsts[server + 1] - firsts[server])
    shares = local_shares(stage_bytes)
    busiest = np.zeros((2, stages + 2), dtype=np.int64)
    loads, links = np.zeros((3, 2, ranks), dtype=np.int64), np.zeros((3, ranks, places), dtype=np.int64)
    steps = loads, links, place, busiest
    staged, largest = np.zeros((2, ranks), dtype=np.int64), np.zeros((2, 2, ranks), dtype=np.int64)  # proxied, landed
    streams = starts, segments, starts[:-1].copy(), np.zeros(len(starts) - 1, dtype=np.int64)
    for step in range(stages + 2):
        # Balancing of this stage, and redistribution two steps later.
        if step < stages:
            staged[:] = 0
            for part in range(parts):
                other = partners[step, part]
                if other >= 0:
                    for lane in range(width):
                        stream = (part * parts + other) * width + lane
                        left = ends[step, part] - begins[step, part]
                        _walk(stream, lanes[part, lane], lanes[other, lane], left, streams, step, steps, staged)
            largest[step % 2] = np.maximum(largest[step % 2], staged)
        # Local bytes, in proportion to the bytes between servers.
        if shares[step] < shares[step + 1]:
            _add_local(traffic, firsts, shares[step], shares[step + 1], step, steps)
        # The step is over: its row is free for the third one from here.
        loads[step % 3] = 0
        links[step % 3] = 0
    return StepLoads(busiest[0], busiest[1], largest.sum(axis=0).sum(axis=0))


@kernel
def _walk(
    stream: int, proxy: int, peer: int, left: int, streams: Streams, step: int, steps: Steps, staged: IntArray
) -> None:
    """Add the next `left` bytes of a stream to the loads of balancing and redistribution, and to the scratch."""
    starts, segments, at, done = streams
    while left and at[stream] < starts[stream + 1]:
        origin, final, _, size = segments[at[stream]]
        length = min(left, size - done[stream])
        if origin != proxy:
            _add(origin, proxy, length, step, steps)
            staged[0, proxy] += length
        if final != peer:
            _add(peer, final, length, step + 2, steps)
            staged[1, peer] += length
        left -= length
        done[stream] += length
        if done[stream] == size:
            at[stream] += 1
            done[stream] = 0


@kernel
def _add_local(traffic: IntArray, firsts: IntArray, begin: int, end: int, step: int, steps: Steps) -> None:
    """Add the local bytes of servers, from one share of them to another."""
    for server in range(len(firsts) - 1):
        for source in range(firsts[server], firsts[server + 1]):
            for final in range(firsts[server], firsts[server + 1]):
                if source != final:
                    length = part_of(traffic[source, final], end) - part_of(traffic[source, final], begin)
                    _add(source, final, length, step, steps)


@kernel
def _add(source: int, destination: int, length: int, step: int, steps: Steps) -> None:
    """Add bytes between GPUs of a server to the loads of a step, and to the largest of them."""
    loads, links, place, busiest = steps
    sent, received, link = loads[step % 3, 0], loads[step % 3, 1], links[step % 3, source]
    sent[source] += length
    received[destination] += length
    link[place[destination]] += length
    busiest[0, step] = max(busiest[0, step], sent[source], received[destination])
    busiest[1, step] = max(busiest[1, step], link[place[destination]])
