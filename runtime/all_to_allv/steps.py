"""Messages of one rank of an all-to-allv, in bytes of its own tensors.

A compiled kernel plans the merged steps of the schedule for the rank alone; see `collopt.schedules.stages.segments`.
"""

from fractions import Fraction
from functools import lru_cache
from math import gcd
from typing import NamedTuple

import numpy as np

from ...errors import UnsupportedError
from ...schedules.stages.two_tier_cost import H200, TwoTierModel
from ...support.arrays import IntArray

MAX_OPERATIONS = 64
"""NCCL is known to hang on batches of hundreds of operations that it divides differently on different ranks."""
FINEST_UNIT = 512  # Bytes; data is cut at multiples of it where rows allow, so that pieces stay aligned
MAX_BYTES = 2**62


class Exchange(NamedTuple):
    """An all-to-allv that all ranks agreed on: its traffic matrix in rows (int64 bytes, row by row) and its options."""

    rows: bytes
    servers: int
    gpus_per_server: int | tuple[int, ...]
    row_bytes: int
    stages: str | None = None
    max_stage_bytes: int | None = None
    max_scratch_bytes: int | None = None
    model: TwoTierModel = H200
    nics: tuple[tuple[Fraction, ...], ...] = ()


class RankSteps(NamedTuple):
    """One rank's messages in order."""

    messages: IntArray  # int64 (messages, 5): peer, 1 for a send, memory (input, output, scratch), place and length
    batches: IntArray  # int64 (batches + 1,): batch b has the messages from ``batches[b]`` to ``batches[b + 1]``
    steps: IntArray  # int64 (batches,): the step of each batch,
    num_steps: int  # of so many
    scratch: int  # Bytes
    own: tuple[int, int, int]  # Where the rank's bytes for itself are in the input and the output, and their number

    def batch(self, number: int) -> list[list[int]]:
        """Return the messages of one batch."""
        rows: list[list[int]] = self.messages[slice(*self.batches[number : number + 2])].tolist()
        return rows


@lru_cache(maxsize=32)
def rank_steps(exchange: Exchange, rank: int) -> RankSteps:
    """Plan an exchange and return one rank's part of it."""
    from ...planners.all_to_all.fast import schedule_all_to_allv
    from .step_kernel import BATCH, LENGTH, PLACE, STEP, rank_messages

    servers, gpus = exchange.servers, exchange.gpus_per_server
    firsts = np.cumsum((0, *((gpus,) * servers if isinstance(gpus, int) else gpus)))
    rows = np.frombuffer(exchange.rows, dtype=np.int64).reshape(firsts[-1], firsts[-1])
    total = sum(rows.sum(axis=1).tolist()) * exchange.row_bytes
    if total >= MAX_BYTES:
        raise UnsupportedError(f"the traffic adds up to {total} bytes; expected less than 2^62")
    # Coarser than bytes, finer than rows where these are long.
    unit = gcd(exchange.row_bytes, FINEST_UNIT)
    plan = schedule_all_to_allv(
        rows * (exchange.row_bytes // unit),
        servers=servers,
        gpus_per_server=gpus,
        nics=exchange.nics or None,
        stages=exchange.stages,
        max_stage_bytes=exchange.max_stage_bytes,
        max_scratch_bytes=exchange.max_scratch_bytes,
        unit_bytes=unit,
        model=exchange.model,
    )
    streams = plan.stream_starts, plan.segments, plan.stage_bytes, plan.partners, plan.begins, plan.ends
    messages, scratch = rank_messages(rank, plan.traffic, firsts, plan.lanes, *streams, MAX_OPERATIONS // 2)
    messages[:, PLACE : LENGTH + 1] *= unit
    new = np.diff(messages[:, STEP : BATCH + 1], axis=0, prepend=-1).any(axis=1)
    begins = np.flatnonzero(new)
    traffic, size = plan.traffic, unit
    own = (traffic[rank, :rank].sum() * size, traffic[:rank, rank].sum() * size, traffic[rank, rank] * size)
    return RankSteps(
        messages[:, : LENGTH + 1].copy(),
        np.append(begins, len(messages)),
        messages[begins, STEP],
        plan.num_stages + 2,
        scratch * unit,
        (int(own[0]), int(own[1]), int(own[2])),
    )
