"""`ExecutionPlan`: what an MSCCL++ plan file says, with every index resolved, and the limits of its executor.

The facts are read from the sources of microsoft/mscclpp (0.9.0: ``execution_plan.cc``, ``execution_kernel.hpp``,
``execution_common.hpp`` and ``executor.cc``).  A plan gives every thread block of every GPU a list of operations.  Data
move by one-sided *puts* into the memory of another GPU; a *signal* on a channel tells the other end, which *waits*.
Channels come in pairs: the k-th channel of GPU a to GPU b and the k-th channel of b to a are the two ends of one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ....schedules import ALLGATHER, COLLECTIVES, Collective
from ....schedules.traffic.collective import collective_or_given
from ...programs.program import Buffer

ChannelType = Literal["memory", "port"]
CHANNEL_TYPES: tuple[ChannelType, ...] = ("memory", "port")

MAX_OPERATIONS = 64
"""Operations of one thread block, those inside pipelines included; the only limit that the executor checks itself."""
MAX_CHANNELS = 16
"""Channels of one type, and remote buffers of one type, that one thread block uses."""
MAX_CHANNELS_PER_OPERATION = 8
MAX_SEMAPHORES_PER_OPERATION = 16
"""A GPU may have more of them: the executor allocates as many as the plan lists."""
MAX_BUFFER_BYTES = 2**32 - 1
"""Offsets are numbers of 32 bits."""
ALIGNMENT = 16
"""Bytes; chunks start at multiples of it.  The executor adds 16 bytes at once and the rest of a chunk wrongly."""
MAX_THREADS = 1024

WRITTEN = tuple(each for each in COLLECTIVES.values() if not each.takes_traffic)
"""Collectives of plan files; the executor treats allgather differently and ignores the names of the others."""

DATA_OPERATIONS = ("put", "pws", "copy", "re")
WAITING = ("wait", "rlxwait")
SIGNALLING = ("signal", "rlxsignal")
SEMAPHORE_OPERATIONS = ("sem_acquire", "sem_release")


@dataclass(frozen=True, slots=True)
class Place:
    """Consecutive chunks of one buffer of one GPU."""

    rank: int
    buffer: Buffer
    start: int
    count: int


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation of a thread block.

    `name`: As in the file.
    `channels`: Positions among all channels of that type of the GPU.
    `sources`, `targets`: A put copies each source to the target beside it; ``re`` adds up all sources into the one
        target.
    `unit_bytes`, `num_chunks`: Of a pipeline: `body` is run for one slice of so many bytes after the other of
        operations of so many chunks.
    """

    name: str
    channel_type: ChannelType | None = None
    channels: tuple[int, ...] = ()
    sources: tuple[Place, ...] = ()
    targets: tuple[Place, ...] = ()
    semaphores: tuple[int, ...] = ()
    unit_bytes: int = 0
    num_chunks: int = 0
    body: tuple[Operation, ...] = ()


@dataclass(frozen=True, slots=True)
class Gpu:
    """What one rank does.

    `input_chunks`, `output_chunks`, `scratch_chunks`: Of the buffers as the executor sees them: input and output are
        never empty.
    `peers`: Other end of each channel.
    `semaphores`: First values.
    """

    input_chunks: int
    output_chunks: int
    scratch_chunks: int
    peers: dict[ChannelType, tuple[int, ...]]
    semaphores: tuple[int, ...]
    thread_blocks: tuple[tuple[Operation, ...], ...]

    @property
    def chunks(self) -> dict[Buffer, int]:
        """Chunks of each buffer."""
        return {"input": self.input_chunks, "output": self.output_chunks, "scratch": self.scratch_chunks}


@dataclass(frozen=True)
class ExecutionPlan:
    """An MSCCL++ execution plan.

    Attributes
    ----------
    name : str
        The executor keeps what it has set up by name, so it must be unique among the plans of a process.
    collective : Collective
        Its name will do.
    in_place : bool
        Whether it is for calls in which input and output are the same memory.
    min_bytes, max_bytes : int
        Sizes that the executor takes: of the output for allgather, of the input otherwise.
    threads_per_block : int
    gpus : tuple of Gpu
        In rank order.
    """

    name: str
    collective: Collective
    in_place: bool
    min_bytes: int
    max_bytes: int
    threads_per_block: int
    gpus: tuple[Gpu, ...]

    def __post_init__(self) -> None:
        """Look up the collective by its name."""
        object.__setattr__(self, "collective", collective_or_given(self.collective))

    @property
    def num_ranks(self) -> int:
        """Number of GPUs."""
        return len(self.gpus)

    def __str__(self) -> str:
        """Name and size."""
        blocks = [block for gpu in self.gpus for block in gpu.thread_blocks]
        operations = sum(flat_length(block) for block in blocks)
        return (
            f"{self.name}: {self.collective} on {self.num_ranks} ranks, {len(blocks)} thread blocks, "
            f"{operations} operations, up to {max(gpu.scratch_chunks for gpu in self.gpus)} scratch chunks"
        )


def flat_length(operations: tuple[Operation, ...]) -> int:
    """Operations as the executor counts them: a pipeline and everything in it."""
    return sum(1 + len(operation.body) for operation in operations)


def channel_pairs(gpus: tuple[Gpu, ...]) -> dict[tuple[int, ChannelType, int], tuple[int, ChannelType, int]]:
    """Map each channel (rank, type, position) to its other end; one without another end is left out."""
    ends: dict[tuple[int, int, ChannelType], list[int]] = {}
    for rank, gpu in enumerate(gpus):
        for kind in CHANNEL_TYPES:
            for position, peer in enumerate(gpu.peers[kind]):
                ends.setdefault((rank, peer, kind), []).append(position)
    return {
        (rank, kind, position): (peer, kind, other)
        for (rank, peer, kind), positions in ends.items()
        for position, other in zip(positions, ends.get((peer, rank, kind), ()), strict=False)
    }


def message_chunks(collective: Collective, gpus: tuple[Gpu, ...]) -> int:
    """Chunks of the buffer whose size the executor compares with the limits of the plan."""
    return gpus[0].output_chunks if collective is ALLGATHER else gpus[0].input_chunks


def largest_message(collective: Collective, gpus: tuple[Gpu, ...]) -> int:
    """Bytes of that buffer up to which no buffer needs an offset of more than 32 bits."""
    chunk = MAX_BUFFER_BYTES // max(max(gpu.chunks.values()) for gpu in gpus)
    return chunk // ALIGNMENT * ALIGNMENT * message_chunks(collective, gpus)
