"""Writes an `ExecutionPlan` down as the JSON that MSCCL++ loads."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from .execution_plan import ALIGNMENT, CHANNEL_TYPES, ExecutionPlan, Gpu, Operation, Place


def to_mscclpp_text(plan: ExecutionPlan) -> str:
    """Return an execution plan as JSON, one operation in a line."""
    document = document_of(plan)
    gpus = document.pop("gpus")
    head = json.dumps(document, indent=2)[:-2]
    return f'{head},\n  "gpus": [\n' + ",\n".join(map(_gpu_text, gpus)) + "\n  ]\n}\n"


def _gpu_text(gpu: dict[str, Any]) -> str:
    lines = []
    for block in gpu["threadblocks"]:
        ops = ",\n".join(f"          {json.dumps(op)}" for op in block["ops"])
        rest = {key: value for key, value in block.items() if key != "ops"}
        lines.append(f'        {json.dumps(rest)[:-1]}, "ops": [\n{ops}\n        ]}}')
    rest = {key: value for key, value in gpu.items() if key != "threadblocks"}
    return f'    {json.dumps(rest)[:-1]}, "threadblocks": [\n' + ",\n".join(lines) + "\n    ]}"


def document_of(plan: ExecutionPlan) -> dict[str, Any]:
    """Return the JSON document of a plan as lists, texts and integers."""
    return {
        "name": plan.name,
        "collective": plan.collective.nccl_name,
        "protocol": "Simple",
        "inplace": plan.in_place,
        "reuse_resources": False,
        "use_double_scratch_buffer": False,
        "buffer_alignment": ALIGNMENT,
        "num_threads_per_block": plan.threads_per_block,
        "min_message_size": plan.min_bytes,
        "max_message_size": plan.max_bytes,
        "gpus": [_gpu_document(rank, gpu) for rank, gpu in enumerate(plan.gpus)],
    }


def _gpu_document(rank: int, gpu: Gpu) -> dict[str, Any]:
    remote: dict[tuple[int, str], set[str]] = defaultdict(set)
    for block in gpu.thread_blocks:
        for operation in _flat(block):
            for place in _remote(operation):
                remote[place.rank, place.buffer].add(operation.channel_type or "")
    numbers = {key: number for number, key in enumerate(sorted(remote))}
    return {
        "id": rank,
        "input_chunks": gpu.input_chunks,
        "output_chunks": gpu.output_chunks,
        "scratch_chunks": gpu.scratch_chunks,
        "channels": [
            {"channel_type": kind, "connected_to": list(gpu.peers[kind])} for kind in CHANNEL_TYPES if gpu.peers[kind]
        ],
        "remote_buffers": [
            {"rank": owner, "type": buffer[0], "access_channel_types": sorted(remote[owner, buffer])}
            for owner, buffer in sorted(remote)
        ],
        "semaphores": [{"init_value": value} for value in gpu.semaphores],
        "threadblocks": [_block_document(number, block, numbers) for number, block in enumerate(gpu.thread_blocks)],
    }


def _block_document(number: int, block: tuple[Operation, ...], buffers: dict[tuple[int, str], int]) -> dict[str, Any]:
    channels: dict[str, set[int]] = defaultdict(set)
    refs: dict[str, set[int]] = defaultdict(set)
    for operation in _flat(block):
        if operation.channel_type:
            channels[operation.channel_type].update(operation.channels)
            refs[operation.channel_type].update(buffers[place.rank, place.buffer] for place in _remote(operation))
    numbers = _Numbers(buffers, _positions(channels), _positions(refs))
    return {
        "id": number,
        "channels": [{"channel_type": kind, "channel_ids": sorted(channels[kind])} for kind in sorted(channels)],
        "remote_buffer_refs": [
            {"access_channel_type": kind, "remote_buffer_ids": sorted(refs[kind])}
            for kind in sorted(refs)
            if refs[kind]
        ],
        "ops": [_operation_document(operation, numbers) for operation in block],
    }


class _Numbers(NamedTuple):
    """By what numbers the operations of a block name what they use: those in the block's own lists."""

    buffers: dict[tuple[int, str], int]  # Of the GPU, by owner and kind.
    channels: dict[tuple[str, int], int]
    refs: dict[tuple[str, int], int]


def _positions(numbers: Mapping[str, set[int]]) -> dict[tuple[str, int], int]:
    return {(kind, each): at for kind, ids in numbers.items() for at, each in enumerate(sorted(ids))}


def _operation_document(operation: Operation, numbers: _Numbers) -> dict[str, Any]:
    fields: dict[str, Any] = {"name": operation.name}
    if operation.body:
        fields["iter_context"] = {"unit_size": operation.unit_bytes, "num_chunks": operation.num_chunks}
        fields["ops"] = [_operation_document(inner, numbers) for inner in operation.body]
    if operation.channel_type:
        fields["channel_ids"] = [numbers.channels[operation.channel_type, each] for each in operation.channels]
        fields["channel_type"] = operation.channel_type
    if operation.sources:
        fields["src_buff"] = [_place_document(place, {"type": place.buffer[0]}) for place in operation.sources]
    if operation.targets:
        fields["dst_buff"] = [
            _place_document(place, _target_buffer(operation, place, numbers)) for place in operation.targets
        ]
    if operation.semaphores:
        fields["semaphore_ids"] = list(operation.semaphores)
    return fields


def _target_buffer(operation: Operation, place: Place, numbers: _Numbers) -> dict[str, Any]:
    if operation.channel_type:
        return {"buffer_id": numbers.refs[operation.channel_type, numbers.buffers[place.rank, place.buffer]]}
    return {"type": place.buffer[0]}


def _place_document(place: Place, buffer: dict[str, Any]) -> dict[str, Any]:
    return {**buffer, "index": place.start, "size": place.count}


def _flat(block: tuple[Operation, ...]) -> Iterable[Operation]:
    return (inner for operation in block for inner in (operation, *operation.body))


def _remote(operation: Operation) -> tuple[Place, ...]:
    """Places in the memory of another GPU: the targets of puts."""
    return operation.targets if operation.channel_type else ()
