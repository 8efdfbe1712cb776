"""`AllToAllvSchedule`: an all-to-allv on servers of several GPUs, in balanced one-to-one stages."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import numpy as np

from ...support.arrays import IntArray
from ...support.formatting import count_text
from ...support.validation import as_whole
from ..schedule import PairSchedule
from .segments import Pieces, StagedArrays, local_bytes, pieces_of
from .two_tier_cost import PIPELINES, TwoTierModel, TwoTierTimes, check_model, two_tier_times
from .verify import verify_all_to_allv

if TYPE_CHECKING:
    import pandas as pd


class Stage(NamedTuple):
    """A stage of at most `num_bytes` for each GPU: `partners` of servers, and bytes of streams, `begins` to `ends`.

    GPU p of server i sends bytes ``begins[i]:ends[i]`` of a stream to GPU p of ``partners[i]``.  A server whose partner
    is -1 sends nothing.  Streams that are shorter by one byte end before ``ends[i]``.  Where servers are unequal, these
    are their parts.
    """

    num_bytes: int
    partners: tuple[int, ...]
    begins: tuple[int, ...]
    ends: tuple[int, ...]


@dataclass(frozen=True, eq=False, repr=False)
class AllToAllvSchedule(StagedArrays, PairSchedule):
    """Schedule of an all-to-allv among n servers of m GPUs by FAST; see `schedule_all_to_allv`.

    Rank r is GPU ``r % m`` of server ``r // m``.  For every two servers, GPU p of the one sends one stream to its peer,
    GPU p of the other:

    1. Balance: in the step before a stage, GPUs hand the bytes of the proxies' streams to proxies of their server.
    2. Stages: in each, a server sends part of its streams to one other and receives from at most one.
    3. Redistribution: in the step after a stage, peers hand the bytes of other GPUs of their server to these.
    4. Local bytes of a server go directly, beside the stages and in proportion to their bytes.

    So step t balances stage t, sends stage t - 1 and redistributes stage t - 2, all at once.

    Where servers or NICs are unequal, a NIC has lanes, all of the largest rate that divides those of NICs.  A lane
    stands for the GPU above, and a part of `gpus_per_server` lanes for the server: either all of a server's, so that
    two servers use as many as the one with fewer has; or as many as divide the lanes of all servers.  Streams of a part
    may hold bytes of all GPUs of its server, and for all GPUs of the other.

    All that is stored follows from the matrix alone, so every rank can compute it.  The arrays are read-only, not
    copied.

    Attributes
    ----------
    traffic : ndarray of int64, shape (ranks, ranks)
        Bytes from each rank to each.
    servers, gpus_per_server : int
        The paper's n and m; parts and their lanes, where servers or NICs are unequal.
    stream_starts : ndarray of int64, shape (n * n * m + 1,)
        Stream ``s = (i * n + j) * m + p`` is ``segments[stream_starts[s]:stream_starts[s + 1]]``.
    segments : ndarray of int64, shape (segments, 4)
        Origin rank, final rank, first byte in that cell of `traffic`, number of bytes.
    stage_bytes : ndarray of int64, shape (stages,)
        Bytes that the busiest GPU, or lane, sends in each stage; ascending.
    partners : ndarray of int64, shape (stages, n)
        The server that each one sends to, or -1.
    begins, ends : ndarray of int64, shape (stages, n)
        Which bytes of each of the m streams to the partner it sends.
    server_sizes : tuple of int
        GPUs of each server, where these or NICs are unequal; otherwise empty.
    nics : tuple of tuple of Fraction
        Rates of the NICs of each server's GPUs, where these are not all 1; otherwise empty.
    """

    parts: ClassVar[str] = "stages"
    subject: ClassVar[str] = "stages are"
    load_text: ClassVar[str] = "the stages put {load} bytes"
    form: ClassVar[str] = "stages"

    def __repr__(self) -> str:
        return f"<AllToAllvSchedule: {self.size_text}>"

    @property
    def size_text(self) -> str:
        """Such as ``"4 servers of 8 GPUs, 3 stages"``."""
        if min(self.sizes) == max(self.sizes):
            size = f"{count_text(len(self.sizes), 'server')} of {count_text(self.sizes[0], 'GPU')}"
        else:
            size = f"{len(self.sizes)} servers of {min(self.sizes)} to {max(self.sizes)} GPUs"
        return f"{size}, {count_text(self.num_stages, 'stage')}"

    @cached_property
    def stages(self) -> tuple[Stage, ...]:
        """All stages, one after another."""
        columns = (self.stage_bytes, self.partners, self.begins, self.ends)
        rows = zip(*(column.tolist() for column in columns), strict=True)
        return tuple(Stage(size, tuple(who), tuple(begins), tuple(ends)) for size, who, begins, ends in rows)

    @property
    def scale_out_bytes(self) -> int:
        """Bytes that the busiest GPU, or lane, sends or receives in all stages together.

        At most n - 1 bytes above `lower_bound`, but for "rotations" and stages between whole servers of unequal NICs.
        """
        return int(self.stage_bytes.sum())

    @property
    def scratch_bytes(self) -> IntArray:
        """Bytes of scratch that each rank needs, at most four times ``stage_bytes[-1]`` for each lane; int64 (ranks,).

        Two areas by turns, of the most that it sends for others in a stage, and two of the most that it receives for
        others in one; its own bytes need none.
        """
        return self.step_loads.scratch

    @cached_property
    def lower_bound(self) -> Fraction:
        """Bytes that some GPU, or lane, has to send or receive between servers in any schedule.

        FAST's Theorem 1, times B_2: bytes that a server sends or receives, over its GPUs or lanes.
        """
        tiles = np.add.reduceat(np.add.reduceat(self._outside(), self.first_ranks, axis=0), self.first_ranks, axis=1)
        busiest = np.maximum(tiles.sum(axis=0), tiles.sum(axis=1)).tolist()
        return max(Fraction(total, size) for total, size in zip(busiest, self.server_lanes.tolist(), strict=True))

    @cached_property
    def unbalanced_bound(self) -> int:
        """As `lower_bound`, if GPUs send all that they have directly by a NIC each: the largest row or column sum."""
        outside = self._outside()
        return int(max(outside.sum(axis=0).max(), outside.sum(axis=1).max()))

    def _outside(self) -> IntArray:
        """Traffic between servers."""
        return np.where(self.homes[:, None] == self.homes, 0, self.traffic)

    def optimum(self, model: TwoTierModel) -> Fraction:
        """Time in µs of Theorem 1: scale-up links infinitely fast, and no wake-ups."""
        check_model(model)
        return self.lower_bound / (Fraction(model.scale_out) * self.lane_rate) / 1000

    def times(self, model: TwoTierModel, pipeline: str = PIPELINES[0]) -> TwoTierTimes:
        """Breakdown of the time; see `collopt.schedules.stages.two_tier_cost.two_tier_times`."""
        return two_tier_times(self, model, pipeline)

    def completion_time(self, model: TwoTierModel, pipeline: str = PIPELINES[0]) -> Fraction:
        """Time in µs from the first byte handed over to the last that arrives, by default as it is run."""
        return self.times(model, pipeline).total

    def time_guarantee(self, model: TwoTierModel) -> Fraction:
        """Time in µs that the steps never exceed, whatever the matrix.

        That is ``scale_out_bytes / scale_out + 2 (m - 1) stage_bytes[-1] / scale_up``, and a wake-up for each step, of
        m GPUs in the largest server; local bytes come on top.  Of lanes, m - 1 is the most that a server
        has besides those of one GPU; links of a mesh may add to it.  It holds if ``scale_up`` is at least the
        ``scale_out`` of all lanes of a server, and a link of a mesh has twice that of a NIC.
        """
        check_model(model)
        counts = self.lane_counts
        lane_surplus = int((self.server_lanes - np.minimum.reduceat(counts, self.first_ranks)).max())
        ends = lane_surplus / Fraction(model.scale_up)
        if model.scale_up_link is not None and lane_surplus:
            ends = max(ends, int(counts.max()) / Fraction(model.scale_up_link))
        waits = Fraction(model.wake_up) * (self.num_stages + 2)
        stages = self.scale_out_bytes / (Fraction(model.scale_out) * self.lane_rate)
        return waits + (stages + 2 * int(self.stage_bytes[-1:].sum()) * ends) / 1000

    def pieces(self, server: int) -> Pieces:
        """Pieces of the data that leaves a server, with proxy, peer and stage."""
        return pieces_of(self, as_whole(server, "server", low=0, high=self.servers - 1))

    def verify(self) -> None:
        """Check that every byte arrives exactly once, and in no more time than the stages need.

        Raises `CertificateError` with the first thing that is wrong.
        """
        verify_all_to_allv(self)

    def to_frame(self) -> pd.DataFrame:
        """Tabulate the bytes from GPU to GPU in each phase.

        Columns are ``phase`` ("balance", "local", "stage" or "redistribute"), ``stage`` (-1 for local), ``source``,
        ``destination`` and ``bytes``; copies of a GPU to itself are left out.
        """
        import pandas as pd

        columns = ["phase", "stage", "source", "destination", "bytes"]
        local = local_bytes(self)
        inside = {"stage": -1, "source": local.source, "destination": local.destination, "bytes": local.length}
        frames = [pd.DataFrame(inside).assign(phase="local")]
        for server in range(self.servers):
            pieces = self.pieces(server)
            for phase, source, destination in (
                ("balance", pieces.origin, pieces.proxy),
                ("stage", pieces.proxy, pieces.peer),
                ("redistribute", pieces.peer, pieces.final),
            ):
                moves = source != destination
                columns_of = (pieces.stage, source, destination, pieces.length)
                rows = np.stack([column[moves] for column in columns_of], axis=1)
                frames.append(pd.DataFrame(rows, columns=columns[1:]).assign(phase=phase))
        frame = pd.concat(frames, ignore_index=True)
        frame["phase"] = pd.Categorical(frame["phase"], ["balance", "local", "stage", "redistribute"])
        keys = ["stage", "phase", "source", "destination"]
        return frame.groupby(keys, observed=True, as_index=False).agg({"bytes": "sum"})[columns]
