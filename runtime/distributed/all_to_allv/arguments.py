"""Looks at one rank's arguments of an all-to-all, and at nobody else's."""

from __future__ import annotations

import os
from typing import Any, NamedTuple

import numpy as np

from ....errors import UnsupportedError
from ....support.validation import shown
from ...programs.checks import check_choice, check_counts, check_seconds
from ..calls.arguments import check_alike, check_async, check_tensor, import_torch
from .agreement import Terms

HOMES = {"nccl": "cuda", "gloo": "cpu"}
"""On which kind of device a backend has its tensors; others may have them where they like."""


class AllToAllCall(NamedTuple):
    """The arguments of one rank's call; `group` is never None."""

    output: Any
    input: Any
    output_splits: Any
    input_splits: Any
    group: Any
    async_op: Any
    servers: int | None
    gpus_per_server: int | None
    traffic: Any
    stages: str
    max_stage_bytes: int | None
    timeout: float | None


def terms_of(call: AllToAllCall) -> Terms:
    """Check the arguments and return what they come to."""
    from ....planners.pairs.fast import STAGES, as_traffic

    _, dist = import_torch()
    ranks, rank = dist.get_world_size(call.group), dist.get_rank(call.group)
    if call.timeout is not None:
        check_seconds("timeout", call.timeout)
    if call.max_stage_bytes is not None:
        check_counts({"max_stage_bytes": call.max_stage_bytes})
    check_choice("stages", call.stages, STAGES)
    servers, gpus = _shape(call, ranks)
    _check_tensors(call)
    check_async(call.async_op, call.input, call.timeout)
    sends = _splits("input", call.input, call.input_splits, ranks)
    takes = _splits("output", call.output, call.output_splits, ranks)
    rows = None
    if call.traffic is not None:
        rows, _, _ = as_traffic(call.traffic, servers, gpus)
        for name, mine, theirs in (("row", sends, rows[rank]), ("column", takes, rows[:, rank])):
            if mine != theirs.tolist():
                where = next(at for at in range(ranks) if mine[at] != theirs[at])
                raise UnsupportedError(
                    f"traffic has {theirs[where]} at position {where} of {name} {rank}; expected {mine[where]}, as "
                    f"rank {rank}'s {'input' if name == 'row' else 'output'} split sizes have it"
                )
    kinds = str(call.input.dtype), call.input.device.type
    return Terms(sends, takes, rows, _row_bytes(call), *kinds, servers, gpus, call.max_stage_bytes, call.stages)


def _shape(call: AllToAllCall, ranks: int) -> tuple[int, int]:
    """Servers and GPUs of each."""
    given = {"servers": call.servers, "gpus_per_server": call.gpus_per_server}
    check_counts({name: count for name, count in given.items() if count is not None})
    servers, gpus = call.servers, call.gpus_per_server
    if servers is None and gpus is None:
        text = os.environ.get("LOCAL_WORLD_SIZE", "")
        local = int(text) if text.isascii() and text.isdigit() and len(text) < 19 else 0
        gpus = local if local and ranks % local == 0 else 1
    if servers is None:
        assert gpus is not None  # By the lines above.
        servers = ranks // gpus
    elif gpus is None:
        gpus = ranks // servers
    if servers * gpus != ranks:
        told = " and ".join(f"{name} is {count}" for name, count in given.items() if count is not None)
        raise UnsupportedError(f"{told}, but the group has {ranks} ranks; expected servers x gpus_per_server = {ranks}")
    return servers, gpus


def _check_tensors(call: AllToAllCall) -> None:
    torch, dist = import_torch()
    backend = dist.get_backend(call.group)
    home = HOMES.get(backend)
    for name, tensor in (("output", call.output), ("input", call.input)):
        check_tensor(name, tensor)
        if tensor.dim() == 0:
            raise UnsupportedError(f"{name} is a single number; expected a tensor with rows, such as .view(1) of it")
        if home is not None and tensor.device.type != home:
            raise UnsupportedError(
                f"{name} is on {tensor.device} but the group's backend is {backend}; expected a tensor on {home}"
            )
        if tensor.device.type == "cuda" and tensor.device.index != torch.cuda.current_device():
            raise UnsupportedError(
                f"{name} is on {tensor.device} but the current device is cuda:{torch.cuda.current_device()}; call "
                "torch.cuda.set_device first"
            )
    output, mine = call.output, call.input
    check_alike(output, mine)
    distance, size = output.data_ptr() - mine.data_ptr(), mine.element_size()
    if output.numel() and mine.numel() and -output.numel() * size < distance < mine.numel() * size:
        raise UnsupportedError("input and output overlap; give the output memory of its own")


def _row_bytes(call: AllToAllCall) -> int | None:
    """Bytes of a row; None if this rank has no rows by which to tell."""
    sizes = {
        name: tensor.numel() // len(tensor) * tensor.element_size()
        for name, tensor in (("output", call.output), ("input", call.input))
        if len(tensor)
    }
    if len(set(sizes.values())) > 1:
        raise UnsupportedError(
            f"output has rows of {sizes['output']} bytes and input has rows of {sizes['input']}; expected the same"
        )
    return next(iter(sizes.values()), None)


def _splits(name: str, tensor: Any, given: Any, ranks: int) -> list[int]:
    """Rows of `tensor` for each rank."""
    rows = len(tensor)
    if given is None or (isinstance(given, (list, tuple)) and not given):
        if rows % ranks:
            raise UnsupportedError(f"{name} has {rows} rows, which {ranks} ranks cannot share; give {name}_split_sizes")
        return [rows // ranks] * ranks
    try:
        sizes = np.asarray(given)
    except (TypeError, ValueError, OverflowError, RuntimeError):
        sizes = np.empty(0)
    if sizes.dtype.kind not in "iu" or sizes.shape != (ranks,):
        raise UnsupportedError(f"{name}_split_sizes is {shown(given)}; expected {ranks} whole numbers, one per rank")
    splits: list[int] = sizes.tolist()
    if min(splits) < 0:
        raise UnsupportedError(f"{name}_split_sizes has {min(splits)}; expected numbers of at least 0")
    if sum(splits) != rows:
        raise UnsupportedError(f"{name}_split_sizes add up to {sum(splits)}; expected {rows}, the rows of {name}")
    return splits
