"""Steps of one rank of an all-to-allv, in bytes of its own tensors.

The steps are FAST's pipeline (section 4.3): data is balanced inside servers, then goes between them in stages, and what
a stage brought is redistributed beside the next one.  A compiled kernel plans them for the rank alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from itertools import pairwise
from math import gcd
from typing import NamedTuple

import numpy as np

from ....errors import UnsupportedError
from ....support.arrays import IntArray

MAX_OPERATIONS = 64
"""NCCL is known to hang on batches of hundreds of operations that it divides differently on different ranks."""
SHIFTS_PER_BATCH = MAX_OPERATIONS // 2  # GPUs at one distance have one message each way
FINEST_UNIT = 512  # Bytes; data is cut at multiples of it where rows allow, so that pieces stay aligned
MAX_BYTES = 2**62


class Exchange(NamedTuple):
    """An all-to-allv that all ranks agreed on: its traffic matrix in rows (int64 bytes, row by row) and its options."""

    rows: bytes
    servers: int
    gpus_per_server: int
    row_bytes: int
    stages: str = "plain"
    max_stage_bytes: int | None = None


class Copy(NamedTuple):
    """A local copy; memories are 0 (the input), 1 (the output) and 2 (scratch)."""

    source: int
    begin: int
    target: int
    place: int
    length: int


class Message(NamedTuple):
    """A send to, or receive from, another rank; the memory is numbered as in `Copy`."""

    peer: int
    is_send: int
    memory: int
    place: int
    length: int


class RankStep(NamedTuple):
    """One rank's part of a step: copies before the messages, batches of messages, and copies after them."""

    before: list[Copy]
    batches: list[list[Message]]
    after: list[Copy]


class RankSteps(NamedTuple):
    """One rank's steps, as the tables of `StepTables`, and the bytes of scratch."""

    before: IntArray
    after: IntArray
    messages: IntArray
    batches: IntArray
    steps: IntArray
    scratch: int

    @property
    def num_steps(self) -> int:
        """Number of steps in which the rank has something to do."""
        return len(self.steps) - 1

    def in_order(self) -> Iterator[RankStep]:
        """Yield the steps in order; built lazily, as there may be thousands of copies."""
        before, after = ([Copy._make(row) for row in table.tolist()] for table in (self.before, self.after))
        messages = [Message._make(row) for row in self.messages.tolist()]
        batches = [messages[begin:end] for begin, end in pairwise(self.batches.tolist())]
        for begins, ends in pairwise(self.steps.tolist()):
            yield RankStep(before[begins[0] : ends[0]], batches[begins[1] : ends[1]], after[begins[2] : ends[2]])


@lru_cache(maxsize=32)
def rank_steps(exchange: Exchange, rank: int) -> RankSteps:
    """Plan an exchange and return one rank's part of it."""
    from ....planners.pairs.fast import schedule_all_to_allv
    from .step_kernel import exchange_steps
    from .step_tables import SCRATCH_PEAK

    servers, gpus = exchange.servers, exchange.gpus_per_server
    rows = np.frombuffer(exchange.rows, dtype=np.int64).reshape(servers * gpus, servers * gpus)
    total = sum(rows.sum(axis=1).tolist()) * exchange.row_bytes
    if total >= MAX_BYTES:
        raise UnsupportedError(f"the traffic adds up to {total} bytes; expected less than 2^62")
    # Coarser than bytes, finer than rows where these are long.
    unit = gcd(exchange.row_bytes, FINEST_UNIT)
    plan = schedule_all_to_allv(
        rows * (exchange.row_bytes // unit),
        servers=servers,
        gpus_per_server=gpus,
        stages=exchange.stages,
        max_stage_bytes=None if exchange.max_stage_bytes is None else max(1, exchange.max_stage_bytes // unit),
    )
    schedule = (plan.stream_starts, plan.segments, plan.partners, plan.begins, plan.ends)
    tables = exchange_steps(rank, plan.traffic, gpus, *schedule, SHIFTS_PER_BATCH)
    for table, columns in ((tables.before, [1, 3, 4]), (tables.after, [1, 3, 4]), (tables.messages, [3, 4])):
        table[:, columns] *= unit
    return RankSteps(*tables[:5], int(tables.counts[SCRATCH_PEAK]) * unit)
