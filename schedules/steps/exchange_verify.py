"""Check of an allreduce in one phase: whose vectors are in what every rank holds, after every step.

It shares no code with the planners, the solvers or the methods of `StepExchange`.
"""

from itertools import pairwise

import numpy as np

from ...errors import CertificateError
from ...support.arrays import BoolArray, IntArray
from ...topologies import Topology
from ..paths.schedule import verified_loads
from ..paths.verify import check_arrays, check_kinds, check_steps_used, verified_hops
from .allreduce import StepExchange
from .verify import LOAD_LIMIT, add_loads, check_columns

MAX_PARTS = 2**28  # sends, each counted once for every part of the vector that it carries


@verified_loads.register(StepExchange)
def _verified_exchange(schedule: StepExchange, topology: Topology) -> IntArray:
    """Verify that a schedule is an allreduce, and sum its load on every link, by steps.

    Checked: the arrays fit together; every path follows links of the topology and passes only switches; something
    happens in every step; no rank adds to a sum what is in it already, or is sent two values of a chunk in a step of
    which one replaces the other; in the end every rank holds the sum of all vectors.
    """
    check_kinds(schedule, StepExchange, topology)
    check_shapes(schedule, topology.num_ranks)
    hops = verified_hops(schedule.path_starts, schedule.path_nodes, "broadcast", topology, "schedule")
    check_columns(schedule, schedule.chunks, "the vector")
    check_steps_used(schedule.steps)
    loads = np.zeros((int(schedule.steps.max()) + 1, topology.num_links), dtype=np.int64)
    add_loads(loads, schedule, np.arange(len(schedule.steps)), hops.links)
    check_sums(schedule)
    return loads


def check_shapes(schedule: StepExchange, ranks: int) -> None:
    """Check that arrays fit together, and that there are enough sends for so many ranks."""
    sends = len(schedule.steps)
    if schedule.num_ranks != ranks:
        raise CertificateError(f"the schedule is for {schedule.num_ranks} ranks; the topology has {ranks}")
    if schedule.chunks < 1 or int(schedule.chunks) * sends >= LOAD_LIMIT:
        raise CertificateError(
            f"the schedule has {schedule.chunks} chunks; expected at least 1, and fewer than {LOAD_LIMIT} in all sends"
        )
    if sends < ranks:
        raise CertificateError(f"the schedule has {sends} sends; {ranks} ranks need at least one each")
    shapes = dict.fromkeys(("steps", "lower", "upper", "routes"), (sends,))
    shapes |= {name: (len(getattr(schedule, name)),) for name in ("path_starts", "path_nodes")}
    check_arrays(schedule, shapes, "schedule")
    if schedule.adds.dtype != np.bool_ or schedule.adds.shape != (sends,):
        raise CertificateError(
            f"the schedule's adds are {schedule.adds.dtype} of shape {schedule.adds.shape}; expected bool, {(sends,)}"
        )


def check_sums(schedule: StepExchange) -> None:
    """Check each part of the vector between points where sends begin or end by itself."""
    points = np.unique(np.concatenate([[0, schedule.chunks], schedule.lower, schedule.upper]))
    first = np.searchsorted(points, schedule.lower)
    counts = np.searchsorted(points, schedule.upper) - first
    if int(counts.sum()) > MAX_PARTS:
        raise CertificateError(f"the sends carry {counts.sum()} parts of the vector; expected at most {MAX_PARTS}")
    number = np.repeat(np.arange(len(counts)), counts)
    part = np.arange(len(number)) + np.repeat(first - np.cumsum(counts) + counts, counts)
    starts, nodes = schedule.path_starts, schedule.path_nodes
    senders, receivers = (nodes[ends][schedule.routes] for ends in (starts[:-1], starts[1:] - 1))
    order = np.lexsort((receivers[number], schedule.steps[number], part))
    number = number[order]
    ends = np.searchsorted(part[order], np.arange(len(points)))
    for begin, end, chunk in zip(ends[:-1], ends[1:], points[:-1].tolist(), strict=True):
        of_part = number[begin:end]
        steps, tails, heads = (column[of_part] for column in (schedule.steps, senders, receivers))
        _check_part(steps, tails, heads, schedule.adds[of_part], schedule.num_ranks, chunk)


def _check_part(steps: IntArray, tails: IntArray, heads: IntArray, all_adds: BoolArray, ranks: int, chunk: int) -> None:
    """Check that every rank ends with all vectors, each once; sends are in the order of steps and receivers."""
    # Bits of a row are the vectors in the sum that a rank holds; sums of numbers of vectors tell whether any is twice.
    held = np.packbits(np.eye(ranks, dtype=np.bool_), axis=1)
    count = np.ones(ranks, dtype=np.int64)
    for begin, end in pairwise(np.flatnonzero(np.diff(steps, prepend=-1, append=-1)).tolist()):
        senders, receivers, adds = tails[begin:end], heads[begin:end], all_adds[begin:end]
        step, replaced = int(steps[begin]), receivers[~adds]
        values = np.bincount(receivers, minlength=ranks)
        if (values[replaced] > 1).any():
            rank = int(replaced[values[replaced] > 1][0])
            raise CertificateError(f"in step {step} rank {rank} is sent two values of chunk {chunk} to keep")
        following, number = held.copy(), count.copy()
        following[replaced] = number[replaced] = 0
        begins = np.flatnonzero(np.diff(receivers, prepend=-1))
        following[receivers[begins]] |= np.bitwise_or.reduceat(held[senders], begins, axis=0)
        np.add.at(number, receivers, count[senders])
        held, count = following, np.unpackbits(following, axis=1).sum(axis=1, dtype=np.int64)
        if (number != count).any():
            rank = int(np.flatnonzero(number != count)[0])
            raise CertificateError(f"in step {step} rank {rank} adds a vector twice to its sum of chunk {chunk}")
    if (count < ranks).any():
        rank = int(np.flatnonzero(count < ranks)[0])
        missing = int(np.argmin(np.unpackbits(held[rank], count=ranks)))
        raise CertificateError(f"rank {rank} never adds chunk {chunk} of rank {missing}")
