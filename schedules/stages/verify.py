"""Checks of all-to-allv schedules from their arrays alone: every byte arrives, exactly once, in legal stages."""

import numpy as np

from ...errors import CertificateError
from ...support.arrays import IntArray
from .segments import StagedArrays


def verify_all_to_allv(schedule: StagedArrays) -> None:
    """Check an all-to-allv schedule.

    Streams: every byte between two servers is in exactly one segment, and streams of two servers differ by one byte at
    most.  Stages: each is a partial permutation of the servers, sizes ascend, every stream is moved whole and in order.
    A stage's size is its longest transfer, so `scale_out_bytes` over `lower_bound` is the gap that the schedule has.
    """
    _check_arrays(schedule)
    lengths = _check_segments(schedule)
    _check_stages(schedule, lengths.max(axis=2, initial=0))


def _require(fine: bool, problem: str) -> None:
    if not fine:
        raise CertificateError(f"the all-to-allv schedule is wrong: {problem}")


def _check_arrays(schedule: StagedArrays) -> None:
    n, m, stages = schedule.servers, schedule.gpus_per_server, len(schedule.stage_bytes)
    shapes = {
        "traffic": (sum(schedule.sizes), sum(schedule.sizes)),
        "stream_starts": (n * n * m + 1,),
        "segments": (len(schedule.segments), 4),
        "stage_bytes": (stages,),
        "partners": (stages, n),
        "begins": (stages, n),
        "ends": (stages, n),
    }
    for name, shape in shapes.items():
        array = getattr(schedule, name)
        _require(array.dtype == np.int64, f"{name} has type {array.dtype}; expected int64")
        _require(array.shape == shape, f"{name} has shape {array.shape}; expected {shape}")
    _require(n > 0 and m > 0, f"it has {n} servers of {m} GPUs")
    sizes = tuple(map(len, schedule.nics)) or schedule.sizes
    _require(min(schedule.sizes) > 0 and sizes == schedule.sizes, f"its servers are of {schedule.sizes} GPUs")
    _require(all(min(row) >= 0 < max(row) for row in schedule.nics), "a server has no NIC")
    lanes = schedule.server_lanes
    fine = bool(lanes.min() > 0) and len(schedule.lanes) == n and (n == len(lanes) or not (lanes % m).any())
    _require(fine, f"its servers have {lanes.tolist()} lanes; expected {n} parts of {m}")
    _require(bool((schedule.traffic >= 0).all()), "the traffic has negative entries")
    starts = schedule.stream_starts
    fine = starts[0] == 0 and starts[-1] == len(schedule.segments) and bool((np.diff(starts) >= 0).all())
    _require(fine, "streams do not cover the segments in order")


def _check_segments(schedule: StagedArrays) -> IntArray:
    """Check that segments are the traffic between servers; return lengths of streams, shape (servers, servers, m)."""
    n, m, ranks, homes = schedule.servers, schedule.gpus_per_server, schedule.num_ranks, schedule.homes
    lanes = schedule.lanes >= 0
    part_homes = homes[schedule.lanes[:, 0]]
    origin, final, first, length = schedule.segments.T
    inside = (schedule.segments >= 0).all() and (origin < ranks).all() and (final < ranks).all() and (length > 0).all()
    _require(bool(inside), "a segment has no valid rank or no bytes")
    stream = np.repeat(np.arange(n * n * m), np.diff(schedule.stream_starts))
    sender, receiver = (part_homes[part] for part in np.divmod(stream // m, n))
    strays = np.flatnonzero((homes[origin] != sender) | (homes[final] != receiver) | (sender == receiver))
    if strays.size:
        at = strays[0]
        _require(False, f"segment {at}, from rank {origin[at]} to {final[at]}, is in a stream of other servers")
    order = np.lexsort((first, final, origin))
    cells, begins = (origin * ranks + final)[order], first[order]
    ends = begins + length[order]
    new = np.diff(cells, prepend=-1) != 0
    gaps = np.flatnonzero(np.where(new, begins != 0, begins != np.roll(ends, 1)))
    if gaps.size:
        source, destination = divmod(int(cells[gaps[0]]), ranks)
        _require(False, f"bytes from rank {source} to {destination} are left out or sent twice")
    sent = np.zeros((ranks, ranks), dtype=np.int64)
    np.add.at(sent, (origin, final), length)
    expected = np.where(homes[:, None] == homes, 0, schedule.traffic)
    if not np.array_equal(sent, expected):
        source, destination = (int(place) for place in np.argwhere(sent != expected)[0])
        actual, due = sent[source, destination], expected[source, destination]
        _require(False, f"streams carry {actual} bytes from rank {source} to {destination}; expected {due}")
    lengths = np.zeros((n, n, m), dtype=np.int64)
    np.add.at(lengths.reshape(-1), stream, length)
    used = lanes[:, None] & lanes
    _require(not lengths[~used].any(), "a stream has no lane")
    first_parts = np.searchsorted(part_homes, np.arange(len(schedule.sizes)))
    longest, shortest = (
        extreme.reduceat(extreme.reduceat(extreme.reduce(bounds, axis=2), first_parts, axis=0), first_parts, axis=1)
        for extreme, bounds in ((np.maximum, lengths), (np.minimum, np.where(used, lengths, lengths.max())))
    )
    _require(bool((longest - shortest <= 1).all()), "streams of the same servers differ by more than a byte")
    return lengths


def _check_stages(schedule: StagedArrays, longest: IntArray) -> None:
    """Check the stages against the longest streams, shape (servers, servers)."""
    n, partners, sizes = schedule.servers, schedule.partners, schedule.stage_bytes
    stage, sender = np.nonzero(partners != -1)
    receiver = partners[stage, sender]
    _require(bool(((receiver >= 0) & (receiver < n) & (receiver != sender)).all()), "a partner is not another server")
    twice = np.flatnonzero(np.bincount(stage * n + receiver) > 1)
    if twice.size:
        _require(False, f"in stage {twice[0] // n} two servers send to the same one")
    begins, ends = schedule.begins[stage, sender], schedule.ends[stage, sender]
    _require(bool((begins >= 0).all() and (ends > begins).all()), "a transfer has no bytes")
    _require(bool((np.diff(sizes, prepend=1) >= 0).all()), "stages are not in ascending order of size")
    order = np.lexsort((stage, receiver, sender))
    pair = (sender * n + receiver)[order]
    new = np.diff(pair, prepend=-1) != 0
    before = np.where(new, 0, np.roll(ends[order], 1))
    _require(np.array_equal(begins[order], before), "a stage does not start where the previous one ended")
    done = np.zeros(n * n, dtype=np.int64)
    done[pair] = ends[order]
    if not np.array_equal(done.reshape(n, n), longest):
        source, destination = (int(place) for place in np.argwhere(done.reshape(n, n) != longest)[0])
        moved, due = done[source * n + destination], longest[source, destination]
        _require(False, f"stages move {moved} bytes of streams from server {source} to {destination}; expected {due}")
    transferred = np.zeros(len(sizes), dtype=np.int64)
    np.maximum.at(transferred, stage, ends - begins)
    unequal = np.flatnonzero(transferred != sizes)
    if unequal.size:
        at = unequal[0]
        _require(False, f"stage {at} has a size of {sizes[at]} bytes, and its longest transfer has {transferred[at]}")
