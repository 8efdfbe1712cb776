"""Writes an `ExecutionPlan` down as the JSON that MSCCL++ loads."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from .plan import ALIGNMENT, CHANNEL_TYPES, COLLECTIVES, ExecutionPlan, Gpu, Operation, Place

__all__ = ["document_of", "to_mscclpp_text"]


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
        "collective": COLLECTIVES[plan.collective],
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
    local = {(kind, each): at for kind, ids in channels.items() for at, each in enumerate(sorted(ids))}
    known = {(kind, each): at for kind, ids in refs.items() for at, each in enumerate(sorted(ids))}

    def op(operation: Operation) -> dict[str, Any]:
        fields: dict[str, Any] = {"name": operation.name}
        if operation.body:
            fields["iter_context"] = {"unit_size": operation.unit_bytes, "num_chunks": operation.num_chunks}
            fields["ops"] = [op(inner) for inner in operation.body]
        if operation.channel_type:
            fields["channel_ids"] = [local[operation.channel_type, each] for each in operation.channels]
            fields["channel_type"] = operation.channel_type
        for key, places in (("src_buff", operation.sources), ("dst_buff", operation.targets)):
            if places:
                fields[key] = [place_of(operation, place, key) for place in places]
        if operation.semaphores:
            fields["semaphore_ids"] = list(operation.semaphores)
        return fields

    def place_of(operation: Operation, place: Place, key: str) -> dict[str, Any]:
        if key == "dst_buff" and operation.channel_type:
            where: dict[str, Any] = {"buffer_id": known[operation.channel_type, buffers[place.rank, place.buffer]]}
        else:
            where = {"type": place.buffer[0]}
        return {**where, "index": place.start, "size": place.count}

    return {
        "id": number,
        "channels": [{"channel_type": kind, "channel_ids": sorted(channels[kind])} for kind in sorted(channels)],
        "remote_buffer_refs": [
            {"access_channel_type": kind, "remote_buffer_ids": sorted(refs[kind])}
            for kind in sorted(refs)
            if refs[kind]
        ],
        "ops": [op(operation) for operation in block],
    }


def _flat(block: tuple[Operation, ...]) -> Iterable[Operation]:
    return (inner for operation in block for inner in (operation, *operation.body))


def _remote(operation: Operation) -> tuple[Place, ...]:
    """Places in the memory of another GPU: the targets of puts."""
    return operation.targets if operation.channel_type else ()
