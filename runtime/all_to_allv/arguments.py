"""Argument checks of one rank's all-to-all, and agreement of all ranks on the call."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ...errors import UnsupportedError
from ...schedules.stages.segments import lane_counts
from ...schedules.stages.two_tier_cost import H200, TwoTierModel, check_model
from ...support.arrays import IntArray
from ...support.validation import shown
from ..execution.agreement import UNKNOWN, coded, compare, digest, gathered, refuse
from ..execution.arguments import check_async, check_same_kind, check_tensor, import_torch
from ..programs.program import check_choice, check_counts, check_seconds
from .steps import Exchange

BACKEND_DEVICES = {"nccl": "cuda", "gloo": "cpu"}
"""Device type that a backend requires; other backends serve several."""
MAX_LANES = 32  # of a NIC: each may have messages of its own in a batch

CALL = "the all-to-all"
MATRIX = "whether traffic is given, and what"
NAMES = ("servers", "gpus_per_server", "max_stage_bytes", "max_scratch_bytes", "stages")
DIGESTED = ("the element type", "the kind of device", "the model", "the rates of NICs", "gpus_per_server", MATRIX)


class AllToAllCall(NamedTuple):
    """The arguments of one rank's call; `group` is never None."""

    output: Any
    input: Any
    output_splits: Any
    input_splits: Any
    group: Any
    async_op: Any
    servers: int | None = None
    gpus_per_server: int | Sequence[int] | None = None
    traffic: Any = None
    stages: str | None = None
    max_stage_bytes: int | None = None
    max_scratch_bytes: int | None = None
    nics: Any = None
    model: TwoTierModel | None = None
    timeout: float | None = None


def check_arguments(call: AllToAllCall) -> Terms:
    """Check the arguments of a call, and fill in defaults."""
    from ...planners.all_to_all.fast import as_rates, as_traffic

    _, dist = import_torch()
    ranks, rank = dist.get_world_size(call.group), dist.get_rank(call.group)
    check_limits(call.timeout, call.stages, {"max_stage_bytes": call.max_stage_bytes})
    check_limits(None, None, {"max_scratch_bytes": call.max_scratch_bytes}, minimum=0)
    sizes = _sizes(call, ranks)
    servers, gpus = len(sizes), sizes[0] if min(sizes) == max(sizes) else sizes
    nics = () if call.nics is None else as_rates(call.nics, sizes)
    if (lanes := lane_counts(nics).max(initial=1)) > MAX_LANES:
        raise UnsupportedError(
            f"the largest rate of nics is {lanes} times the one that divides all; expected at most {MAX_LANES} times, "
            "as of rounder rates"
        )
    _check_tensors(call)
    check_async(call.async_op, call.input, call.timeout)
    # Splits, and the row and column of this rank in the traffic.
    sends = _splits("input", call.input, call.input_splits, ranks)
    receives = _splits("output", call.output, call.output_splits, ranks)
    rows = None
    if call.traffic is not None:
        rows, _, _ = as_traffic(call.traffic, ranks, 1)
        for name, mine, theirs in (("row", sends, rows[rank]), ("column", receives, rows[:, rank])):
            if mine != theirs.tolist():
                where = next(at for at in range(ranks) if mine[at] != theirs[at])
                raise UnsupportedError(
                    f"traffic has {theirs[where]} at position {where} of {name} {rank}; expected {mine[where]}, as "
                    f"rank {rank}'s {'input' if name == 'row' else 'output'} split sizes have it"
                )
    # Values that all ranks compare.
    kinds = str(call.input.dtype), call.input.device.type
    model = H200 if call.model is None else call.model
    check_model(model)
    limits = call.max_stage_bytes, call.max_scratch_bytes
    exchange = Exchange(b"", servers, gpus, 0, call.stages, *limits, model, nics)
    return Terms(sends, receives, rows, _row_bytes(call), *kinds, exchange)


def check_limits(timeout: object, stages: object, caps: Mapping[str, int | None], minimum: int = 1) -> None:
    """Refuse an invalid timeout, kind of stages or cap; None stands for an option that is not given."""
    from ...planners.all_to_all.fast import STAGES

    if timeout is not None:
        check_seconds("timeout", timeout)
    if stages is not None:
        check_choice("stages", stages, STAGES)
    check_counts({name: cap for name, cap in caps.items() if cap is not None}, minimum=minimum)


def _sizes(call: AllToAllCall, ranks: int) -> tuple[int, ...]:
    """GPUs of each server."""
    from ...planners.all_to_all.fast import as_sizes

    if not isinstance(call.gpus_per_server, Sequence):
        servers, gpus = servers_and_gpus(call.servers, call.gpus_per_server, ranks)
        return (gpus,) * servers
    sizes = as_sizes(call.gpus_per_server, len(call.gpus_per_server) if call.servers is None else call.servers)
    if sum(sizes) != ranks:
        raise UnsupportedError(f"gpus_per_server adds up to {sum(sizes)}, but the group has {ranks} ranks")
    return sizes


def servers_and_gpus(servers: int | None, gpus: int | None, ranks: int) -> tuple[int, int]:
    """Number of servers, and of GPUs per server."""
    shape = {"servers": servers, "gpus_per_server": gpus}
    check_counts({name: count for name, count in shape.items() if count is not None})
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
        got = " and ".join(f"{name} is {count}" for name, count in shape.items() if count is not None)
        raise UnsupportedError(f"{got}, but the group has {ranks} ranks; expected servers x gpus_per_server = {ranks}")
    return servers, gpus


def _check_tensors(call: AllToAllCall) -> None:
    torch, dist = import_torch()
    backend = dist.get_backend(call.group)
    device = BACKEND_DEVICES.get(backend)
    for name, tensor in (("output", call.output), ("input", call.input)):
        check_tensor(name, tensor)
        if tensor.dim() == 0:
            raise UnsupportedError(f"{name} is a single number; expected a tensor with rows, such as .view(1) of it")
        if device is not None and tensor.device.type != device:
            raise UnsupportedError(
                f"{name} is on {tensor.device} but the group's backend is {backend}; expected a tensor on {device}"
            )
        if tensor.device.type == "cuda" and tensor.device.index != torch.cuda.current_device():
            raise UnsupportedError(
                f"{name} is on {tensor.device} but the current device is cuda:{torch.cuda.current_device()}; call "
                "torch.cuda.set_device first"
            )
    output, mine = call.output, call.input
    check_same_kind(output, mine)
    distance, size = output.data_ptr() - mine.data_ptr(), mine.element_size()
    if output.numel() and mine.numel() and -output.numel() * size < distance < mine.numel() * size:
        raise UnsupportedError("input and output overlap; give the output memory of its own")


def _row_bytes(call: AllToAllCall) -> int | None:
    """Bytes of a row; None if this rank has no rows."""
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


def _splits(name: str, tensor: Any, split_sizes: Any, ranks: int) -> list[int]:
    """Return the split sizes of `tensor`, one per rank."""
    rows = len(tensor)
    if split_sizes is None or (isinstance(split_sizes, (list, tuple)) and not split_sizes):
        if rows % ranks:
            raise UnsupportedError(f"{name} has {rows} rows, which {ranks} ranks cannot share; give {name}_split_sizes")
        return [rows // ranks] * ranks
    try:
        sizes = np.asarray(split_sizes)
    except (TypeError, ValueError, OverflowError, RuntimeError):
        sizes = np.empty(0)
    if sizes.dtype.kind not in "iu" or sizes.shape != (ranks,):
        raise UnsupportedError(
            f"{name}_split_sizes is {shown(split_sizes)}; expected {ranks} whole numbers, one per rank"
        )
    splits: list[int] = sizes.tolist()
    if min(splits) < 0:
        raise UnsupportedError(f"{name}_split_sizes has {min(splits)}; expected numbers of at least 0")
    if sum(splits) != rows:
        raise UnsupportedError(f"{name}_split_sizes add up to {sum(splits)}; expected {rows}, the rows of {name}")
    return splits


class Terms(NamedTuple):
    """Checked arguments of one rank: rows sent to and received from each rank, and the bytes of a row, if known."""

    sends: list[int]
    receives: list[int]
    traffic: IntArray | None
    row_bytes: int | None
    dtype: str
    device: str
    exchange: Exchange  # Without rows and their bytes, which depend on the other ranks


def agreed_exchange(terms: Terms | UnsupportedError, group: Any, timeout: float | None) -> Exchange:
    """Exchange the arguments, or errors, of all ranks, and return the agreed exchange; split sizes must match."""
    if isinstance(terms, UnsupportedError):
        refuse(terms, len(NAMES + DIGESTED) + 2, group, timeout, CALL)
    from ...planners.all_to_all.fast import STAGES

    exchange = terms.exchange
    # No digest is 0, so that it can stand for no matrix.
    matrix = 0 if terms.traffic is None else 1 + digest(terms.traffic.tobytes())
    limits = coded(exchange.max_stage_bytes), coded(exchange.max_scratch_bytes)
    sizes = exchange.gpus_per_server
    kinds = (terms.dtype, terms.device, str(exchange.model), str(exchange.nics), str(sizes))
    way = coded(None if exchange.stages is None else STAGES[exchange.stages])
    digests = [*(digest(kind.encode()) for kind in kinds), matrix]
    gpus = sizes if isinstance(sizes, int) else max(sizes)
    row = [0, exchange.servers, gpus, *limits, way, *digests, coded(terms.row_bytes)]
    table = gathered(row, group, timeout, CALL)
    compare(table, CALL, NAMES, DIGESTED, {"stages": {code: name for name, code in STAGES.items()}})
    row_bytes = _agreed_size(table[:, -1])
    rows = terms.traffic
    if rows is None:
        splits = gathered([*terms.sends, *terms.receives], group, timeout, CALL)
        rows = _match_splits(splits[:, : len(terms.sends)], splits[:, len(terms.sends) :])
    return exchange._replace(rows=rows.tobytes(), row_bytes=row_bytes)


def _agreed_size(sizes: IntArray) -> int:
    """Compare the bytes of a row on all ranks, and return them; 0 if no rank has a row."""
    ranks_with_rows = np.flatnonzero(sizes != UNKNOWN)
    if not ranks_with_rows.size:
        return 0
    first = int(ranks_with_rows[0])
    if strays := [int(rank) for rank in ranks_with_rows if sizes[rank] != sizes[first]]:
        raise UnsupportedError(
            f"rows have {sizes[first]} bytes on rank {first} and {sizes[strays[0]]} on rank {strays[0]}; expected the "
            "same everywhere"
        )
    return int(sizes[first])


def _match_splits(sends: IntArray, receives: IntArray) -> IntArray:
    """Check that the split sizes of senders match those of receivers; return the rows sent."""
    if (sends != receives.T).any():
        source, target = (int(rank) for rank in np.argwhere(sends != receives.T)[0])
        raise UnsupportedError(
            f"rank {source} has {sends[source, target]} rows for rank {target}, which expects "
            f"{receives[target, source]}; expected input and output split sizes that match"
        )
    return np.ascontiguousarray(sends)
