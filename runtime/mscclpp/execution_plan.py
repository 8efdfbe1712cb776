"""`ExecutionPlan`: an MSCCL++ plan with every index resolved, and its JSON; docs/reference/mscclpp.md has the sources.

Data moves by one-sided *puts*; a *signal* on a channel notifies the other end, which *waits*.  The k-th channel of GPU
a to b and the k-th of b to a are the two ends of one.  A *switch channel* is one buffer of all GPUs of a group (NVLS):
``glres`` adds up their chunks and stores the sum to all, ``gstore`` stores those of its GPU.  The loader adds the
offset of a GPU's own buffer only to what has a ``buffer_id``; other sources are read from the allocation's start.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from typing import Any, Literal, NamedTuple

from ...schedules import ALLGATHER, Collective
from ...schedules.collective import collective_or_given
from ..programs.program import Buffer
from . import executor

ChannelType = Literal["memory", "port", "switch"]
CHANNEL_TYPES: tuple[ChannelType, ...] = ("memory", "port")
"""Types of channels with two ends."""

Signal = tuple[str, int, int]
"""A resource to wait for: ("memory" or "port", rank, position of a channel) or ("semaphore", rank, number)."""


@dataclass(frozen=True, slots=True)
class Place:
    """Consecutive chunks of one buffer of one GPU; as packets of LL they take twice the room, from twice the offset."""

    rank: int
    buffer: Buffer
    start: int
    count: int
    packed: bool = False


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation of a thread block."""

    name: str  # As in the file
    channel_type: ChannelType | None = None
    channels: tuple[int, ...] = ()  # Positions among all channels of that type of the GPU; see `switch_ends`
    sources: tuple[Place, ...] = ()  # a put copies each to the target beside it, ``re`` reduces all into one
    targets: tuple[Place, ...] = ()
    semaphores: tuple[int, ...] = ()
    from_base: bool = False  # Whether a port channel reads the sources from where their allocation starts
    unit_bytes: int = 0  # of a pipeline: bytes of the slices for which `body` is repeated
    num_chunks: int = 0  # of a pipeline: chunks of its operations
    body: tuple[Operation, ...] = ()
    part: tuple[int, int] = (0, 1)  # Its number, and of how many parts: each moves one of all its places
    barrier: tuple[int, int] = (0, 0)  # Number, and thread blocks that meet

    def awaited(self, rank: int) -> list[Signal]:
        """Signals that it waits for on a rank."""
        if self.name in executor.WAITING:
            return [(str(self.channel_type), rank, channel) for channel in self.channels]
        return [("semaphore", rank, number) for number in self.semaphores if self.name == "sem_acquire"]

    @property
    def signals(self) -> bool:
        """Whether it signals on its channels."""
        return self.name in (*executor.SIGNALLING, "pws", "pwsf")

    @property
    def shape(self) -> tuple[str, str]:
        """Letters of its sources and targets; see `executor.SHAPES`."""
        shape = None
        if self.name in executor.SHAPES:
            shape = executor.shape_of(self.name, self.channel_type, len(self.sources), len(self.targets))
        return shape or ("", "")

    @property
    def remote_places(self) -> tuple[Place, ...]:
        """Ranges in remote buffers."""
        pairs = zip((*self.sources, *self.targets), "".join(self.shape), strict=False)
        return tuple(place for place, letter in pairs if letter in "rq")

    @property
    def offset_buffers(self) -> set[Buffer]:
        """Buffers that a port channel reads where they begin in their allocation; scratch always begins its own."""
        if self.channel_type != "port" or self.from_base:
            return set()
        return {place.buffer for place in self.sources if place.buffer != "scratch"}

    @property
    def switch_ends(self) -> tuple[int | None, int]:
        """Switch channels of source and target of a ``glres`` or ``gstore``; None where it reads its own GPU."""
        return self.channels[0] if self.name == "glres" else None, self.channels[-1]

    def copies(self, gpu: Gpu) -> tuple[tuple[Place, ...], tuple[Place, ...]]:
        """All places that it reads and writes on behalf of a GPU: those of switch channels on all of the group."""
        if self.name == "get":
            # Of each end the executor takes the offset for the other one (``execution_kernel.hpp``, line 139).
            pairs = zip(self.sources, self.targets, strict=True)
            sources, targets = zip(
                *((replace(one, start=other.start), replace(other, start=one.start)) for one, other in pairs),
                strict=True,
            )
            return sources, targets
        if self.name not in executor.SWITCH_OPERATIONS:
            return self.sources, self.targets
        read, targets = (
            ends if channel is None else tuple(replace(ends[0], rank=rank) for rank in gpu.switches[channel].ranks)
            for channel, ends in zip(self.switch_ends, (self.sources, self.targets), strict=True)
        )
        return read, targets


class SwitchGroup(NamedTuple):
    """A switch channel: one buffer of all GPUs of a group."""

    buffer: Buffer
    ranks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Gpu:
    """Program of one GPU."""

    input_chunks: int  # Of the buffers as the executor sees them: input and output are never empty
    output_chunks: int
    scratch_chunks: int
    peers: dict[ChannelType, tuple[int, ...]]  # Other end of each channel
    semaphores: tuple[int, ...]  # First values
    thread_blocks: tuple[tuple[Operation, ...], ...]
    switches: tuple[SwitchGroup, ...] = ()  # Its switch channels

    @property
    def chunks(self) -> dict[Buffer, int]:
        """Chunks of each buffer."""
        return {"input": self.input_chunks, "output": self.output_chunks, "scratch": self.scratch_chunks}

    def operations(self) -> Iterator[Operation]:
        """Yield all operations, those inside pipelines too."""
        return (operation for block in self.thread_blocks for operation in flat(block))


@dataclass(frozen=True)
class ExecutionPlan:
    """An MSCCL++ execution plan.

    Attributes
    ----------
    name : str
        The executor keeps what it has set up by name, so it must be unique among the plans of a process.
    collective : Collective or None
        Its name will do; None of those that collopt does not know, such as ``"sendrecv"``.
    in_place : bool
        Whether it is for calls in which input and output are the same memory.
    min_bytes, max_bytes : int
        Sizes that the executor takes: of the output for allgather, of the input otherwise.
    threads_per_block : int
    gpus : tuple of Gpu
        In rank order.
    packets : bool
        Whether its protocol is LL, so that scratch has room for packets.
    halves : int
        2 if calls use the halves of scratch in turn, else 1.
    reuses : bool
        Whether its scratch is of one size, whatever that of the message.
    text : str
        Its JSON, where it has been made; else empty.
    """

    name: str
    collective: Collective | None
    in_place: bool
    min_bytes: int
    max_bytes: int
    threads_per_block: int
    gpus: tuple[Gpu, ...]
    packets: bool = False
    halves: int = 1
    reuses: bool = False
    text: str = field(default="", init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Look up the collective by its name."""
        if self.collective is not None:
            object.__setattr__(self, "collective", collective_or_given(self.collective))

    @property
    def num_ranks(self) -> int:
        """Number of GPUs."""
        return len(self.gpus)

    def operations(self) -> Iterator[Operation]:
        """Yield all operations of all GPUs, those inside pipelines too."""
        return (operation for gpu in self.gpus for operation in gpu.operations())

    @property
    def message_chunks(self) -> int:
        """Chunks of the buffer whose size the executor compares with the limits of the plan."""
        return self.gpus[0].output_chunks if self.collective is ALLGATHER else self.gpus[0].input_chunks

    @property
    def smallest_message(self) -> int:
        """Smallest size of that buffer with which chunks have 16 bytes."""
        return executor.ALIGNMENT * self.message_chunks

    @property
    def largest_message(self) -> int:
        """Largest size of that buffer with which all offsets fit 32 bits, and chunks the scratch that is reused."""
        scratch = max(gpu.scratch_chunks for gpu in self.gpus)
        room = scratch * (1 + self.packets) * self.halves
        chunk = executor.MAX_BUFFER_BYTES // max(room, *(max(gpu.chunks.values()) for gpu in self.gpus))
        if self.reuses and scratch:
            chunk = min(chunk, executor.SCRATCH_BYTES // self.halves // scratch)
        return chunk // executor.ALIGNMENT * self.smallest_message

    def channel_pairs(self) -> dict[tuple[int, ChannelType, int], tuple[int, ChannelType, int]]:
        """Map each channel (rank, type, position) to its other end; one without another end is left out."""
        ends: dict[tuple[int, int, ChannelType], list[int]] = {}
        for rank, gpu in enumerate(self.gpus):
            for kind in CHANNEL_TYPES:
                for position, peer in enumerate(gpu.peers[kind]):
                    ends.setdefault((rank, peer, kind), []).append(position)
        return {
            (rank, kind, position): (peer, kind, other)
            for (rank, peer, kind), positions in ends.items()
            for position, other in zip(positions, ends.get((peer, rank, kind), ()), strict=False)
        }

    def __str__(self) -> str:
        """Name and size."""
        blocks, operations = sum(len(gpu.thread_blocks) for gpu in self.gpus), sum(1 for _ in self.operations())
        return (
            f"{self.name}: {self.collective or 'some collective'} on {self.num_ranks} ranks, {blocks} thread blocks, "
            f"{operations} operations, up to {max(gpu.scratch_chunks for gpu in self.gpus)} scratch chunks"
        )


def flat(block: tuple[Operation, ...]) -> Iterator[Operation]:
    """Yield all operations of a thread block, those inside pipelines too, as the executor counts them."""
    return (inner for operation in block for inner in (operation, *operation.body))


def to_mscclpp_text(plan: ExecutionPlan) -> str:
    """Return an execution plan as JSON, one operation in a line."""
    return plan.text or text_of(document_of(plan))


def text_of(document: dict[str, Any]) -> str:
    """Return the text of a plan's document."""
    head = json.dumps({key: value for key, value in document.items() if key != "gpus"}, indent=2)[:-2]
    return f'{head},\n  "gpus": [\n' + ",\n".join(map(_gpu_text, document["gpus"])) + "\n  ]\n}\n"


def _gpu_text(gpu: dict[str, Any]) -> str:
    lines = []
    for block in gpu["threadblocks"]:
        ops = ",\n".join(f"          {json.dumps(op)}" for op in block["ops"])
        fields = {key: value for key, value in block.items() if key != "ops"}
        lines.append(f'        {json.dumps(fields)[:-1]}, "ops": [\n{ops}\n        ]}}')
    fields = {key: value for key, value in gpu.items() if key != "threadblocks"}
    return f'    {json.dumps(fields)[:-1]}, "threadblocks": [\n' + ",\n".join(lines) + "\n    ]}"


def document_of(plan: ExecutionPlan) -> dict[str, Any]:
    """Return the JSON document of a plan."""
    return {
        "name": plan.name,
        "collective": plan.collective.nccl_name if plan.collective else "other",
        "protocol": "LL" if plan.packets else "Simple",
        "inplace": plan.in_place,
        "reuse_resources": plan.reuses,
        "use_double_scratch_buffer": plan.halves == 2,
        "buffer_alignment": executor.ALIGNMENT,
        "num_threads_per_block": plan.threads_per_block,
        "min_message_size": plan.min_bytes,
        "max_message_size": plan.max_bytes,
        "gpus": [_gpu_document(rank, gpu) for rank, gpu in enumerate(plan.gpus)],
    }


def _gpu_document(rank: int, gpu: Gpu) -> dict[str, Any]:
    remote: dict[tuple[int, str], set[str]] = defaultdict(set)
    offset_by: dict[str, int] = {}
    for operation in gpu.operations():
        for place in operation.remote_places:
            remote[place.rank, place.buffer].add(operation.channel_type or "")
        if operation.targets:
            offset_by |= dict.fromkeys(operation.offset_buffers, operation.targets[0].rank)
    for buffer, peer in offset_by.items():
        if not any(kind == buffer and "port" in kinds for (_, kind), kinds in remote.items()):
            remote[peer, buffer].add("port")
    numbers = {key: number for number, key in enumerate(sorted(remote))}
    on_ports = {number: key[1] for key, number in numbers.items() if "port" in remote[key]}
    return {
        "id": rank,
        "input_chunks": gpu.input_chunks,
        "output_chunks": gpu.output_chunks,
        "scratch_chunks": gpu.scratch_chunks,
        "channels": [
            *(
                {"channel_type": kind, "connected_to": list(gpu.peers[kind])}
                for kind in CHANNEL_TYPES
                if gpu.peers[kind]
            ),
            *(
                {
                    "channel_type": "switch",
                    "buffer_type": buffer[0],
                    "rank_groups": [{"size": len(ranks), "ranks": [*ranks]}],
                }
                for buffer, ranks in gpu.switches
            ),
        ],
        "remote_buffers": [
            {"rank": owner, "type": buffer[0], "access_channel_types": sorted(remote[owner, buffer])}
            for owner, buffer in sorted(remote)
        ],
        "semaphores": [{"init_value": value} for value in gpu.semaphores],
        "threadblocks": [
            _block_document(number, block, numbers, on_ports) for number, block in enumerate(gpu.thread_blocks)
        ],
    }


def _block_document(
    number: int, block: tuple[Operation, ...], buffers: dict[tuple[int, str], int], on_ports: Mapping[int, str]
) -> dict[str, Any]:
    channels: dict[str, set[int]] = defaultdict(set)
    listed: dict[str, set[int]] = defaultdict(set)
    offset: set[Buffer] = set()
    for operation in flat(block):
        if operation.channel_type:
            channels[operation.channel_type].update(operation.channels)
            places = operation.remote_places
            listed[operation.channel_type].update(buffers[place.rank, place.buffer] for place in places)
            offset |= operation.offset_buffers
    refs = {kind: sorted(numbers) for kind, numbers in listed.items() if numbers}
    if offset:
        refs["port"] = _with_offsets(refs["port"], offset, on_ports)
    numbers = _Numbers(buffers, _positions(channels), _positions(refs))
    return {
        "id": number,
        "channels": [{"channel_type": kind, "channel_ids": sorted(channels[kind])} for kind in sorted(channels)],
        "remote_buffer_refs": [{"access_channel_type": kind, "remote_buffer_ids": refs[kind]} for kind in sorted(refs)],
        "ops": [_operation_document(operation, numbers) for operation in block],
    }


def _with_offsets(refs: list[int], offset: set[Buffer], kinds: Mapping[int, str]) -> list[int]:
    """Put a remote input at position 0 and a remote output at position 1, where sources need offsets of their kind.

    In the executor the number of the remote buffer whose offset is added and the type of the local buffer are one
    field (``BufferRef``, ``execution_common.hpp`` of 0.9.0, line 87), and these are the values of the two types.
    """
    # Prefer those that the block puts into anyway.
    first = {buffer: next(number for number in (*refs, *kinds) if kinds[number] == buffer) for buffer in offset}
    lead = [first.get("input", next((number for number in refs if number != first.get("output")), refs[0]))]
    if "output" in first:
        lead.append(first["output"])
    return [*lead, *(number for number in refs if number not in lead)]


class _Numbers(NamedTuple):
    """Indices into a block's lists of buffers and channels; `buffers`: indices of the GPU, by owner and kind."""

    buffers: dict[tuple[int, str], int]
    channels: dict[tuple[str, int], int]
    refs: dict[tuple[str, int], int]


def _positions(numbers: Mapping[str, Iterable[int]]) -> dict[tuple[str, int], int]:
    """First position of each number in its list; sets are listed in order."""
    listed = {kind: sorted(ids) if isinstance(ids, set) else [*ids] for kind, ids in numbers.items()}
    return {(kind, number): at for kind, ids in listed.items() for at, number in reversed([*enumerate(ids)])}


def _operation_document(operation: Operation, numbers: _Numbers) -> dict[str, Any]:
    kind = operation.channel_type
    fields: dict[str, Any] = {"name": operation.name}
    if operation.body:
        fields["iter_context"] = {"unit_size": operation.unit_bytes, "num_chunks": operation.num_chunks}
        fields["ops"] = [_operation_document(inner, numbers) for inner in operation.body]
    if kind and kind != "switch" and operation.channels:
        fields["channel_ids"] = [numbers.channels[kind, channel] for channel in operation.channels]
    if kind:
        fields["channel_type"] = kind
    fields |= _ends_document(operation, numbers)
    if operation.part != (0, 1):
        fields["tbg_info"] = dict(zip(("tb_id", "tbg_size"), operation.part, strict=True))
    if operation.name == "barrier":
        fields |= dict(zip(("barrier_id", "num_threadblocks"), operation.barrier, strict=True))
    if operation.name == "glres":
        fields["reduce_op"] = "sum"
    if operation.semaphores:
        fields["semaphore_ids"] = list(operation.semaphores)
    return fields


def _ends_document(operation: Operation, numbers: _Numbers) -> dict[str, list[dict[str, Any]]]:
    """Sources and targets of an operation."""
    kind, fields = operation.channel_type, dict[str, list[dict[str, Any]]]()
    on_switches = operation.switch_ends if kind == "switch" else (None, None)
    for key, places, letters, switch in zip(
        ("src_buff", "dst_buff"), (operation.sources, operation.targets), operation.shape, on_switches, strict=True
    ):
        for place, letter in zip_longest(places, letters, fillvalue=""):
            assert isinstance(place, Place)
            end: dict[str, Any] = {"type": place.buffer[0]}
            if key == "src_buff" and place.buffer in operation.offset_buffers:
                end["buffer_id"] = executor.OFFSET_IDS[place.buffer]
            if switch is not None:
                end = {"switch_channel_id": numbers.channels["switch", switch]}
            elif letter in ("r", "q"):
                end = {"buffer_id": numbers.refs[str(kind), numbers.buffers[place.rank, place.buffer]]}
            fields.setdefault(key, []).append(end | {"index": place.start, "size": place.count})
    return fields
