"""All-to-all of unequal parts through torch.distributed, by the stages of FAST."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ..errors import ProgramError, UnsupportedError
from ..topologies.validation import shown
from .agreement import first_line, wait
from .all_to_all_agreement import Terms, agreed_exchange
from .all_to_all_steps import OwnStep, OwnSteps, own_steps
from .arguments import import_torch
from .batches import Operation, Piece
from .options import check_counts, check_seconds

if TYPE_CHECKING:
    import pandas as pd
    import torch
    import torch.distributed as dist

__all__ = ["all_to_all_single"]

MOST_SECONDS = 1e9


class _Call(NamedTuple):
    """The arguments of one rank's call; `group` is never None."""

    output: Any
    input: Any
    output_splits: Any
    input_splits: Any
    group: Any
    servers: int | None
    gpus_per_server: int | None
    traffic: Any
    timeout: float | None
    max_stage_bytes: int | None


def all_to_all_single(
    output: torch.Tensor,
    input: torch.Tensor,  # noqa: A002 - torch.distributed's own name for it.
    output_split_sizes: list[int] | None = None,
    input_split_sizes: list[int] | None = None,
    group: dist.ProcessGroup | None = None,
    *,
    servers: int | None = None,
    gpus_per_server: int | None = None,
    traffic: npt.ArrayLike | pd.DataFrame | None = None,
    timeout: float | None = None,
    max_stage_bytes: int | None = None,
) -> None:
    """Send every rank its part of `input`: as `torch.distributed.all_to_all_single` does, but in balanced stages.

    All ranks of the group have to call.  They first tell each other their splits, or only that they agree if `traffic`
    is given; then each works out the same schedule for itself, or has it from one of the last calls.  Wrong arguments
    on any rank raise on every rank, before `output` is written to; after a ProgramError it holds anything.

    Parameters
    ----------
    output, input : torch.Tensor
        Contiguous, of one type on one device, apart from each other, with rows of the same size.
    output_split_sizes, input_split_sizes : list of int, optional
        Rows (along dimension 0) from each rank and to each rank; equal parts if None.
    group : torch.distributed.ProcessGroup, optional
        None is the default group.
    servers, gpus_per_server : int, optional
        Rank r of the group is GPU ``r % gpus_per_server`` of server ``r // gpus_per_server``.  One follows from the
        other.  By default a server has as many as the environment variable ``LOCAL_WORLD_SIZE`` says, if groups of so
        many make up all ranks, otherwise one.
    traffic : array_like or DataFrame of integers, shape (ranks, ranks), optional
        Rows from each rank to each, the same on all ranks.  Saves an exchange of the splits, with which each rank
        compares its own row and column.
    timeout : float, optional
        Seconds that one exchange may take; None leaves it to the process group.
    max_stage_bytes : int, optional
        As for `collopt.planners.schedule_all_to_allv`.

    Raises
    ------
    UnsupportedError
        If the arguments of any rank are wrong, do not fit the splits of others, or differ where they must not.
    ProgramError
        If the exchange fails or is late.
    MissingDependencyError
        If torch is not installed.

    Notes
    -----
    Per call, a rank needs scratch memory for all that it sends to other servers as a proxy, the largest stage that it
    receives, and what it hands to and takes from GPUs of its server in one step.
    """
    _, dist = import_torch()
    if not dist.is_initialized():
        raise UnsupportedError("torch.distributed is not initialised; call init_process_group, or start with torchrun")
    if dist.get_rank(group) < 0:
        raise UnsupportedError("this process is not a member of the group; only members may call")
    call = _Call(
        output,
        input,
        output_split_sizes,
        input_split_sizes,
        dist.group.WORLD if group is None else group,
        servers,
        gpus_per_server,
        traffic,
        timeout,
        max_stage_bytes,
    )
    terms: Terms | UnsupportedError
    try:
        terms = _terms(call)
    except UnsupportedError as error:
        terms = error
    call = call._replace(timeout=_patience(timeout))
    exchange = agreed_exchange(terms, call.group, call.timeout)
    if exchange.row_bytes:
        _run(call, own_steps(exchange, dist.get_rank(group)))


def _patience(timeout: object) -> float | None:
    """As many seconds as torch can count; None if there is no such number, so that wrong arguments can be told of."""
    try:
        check_seconds("timeout", timeout)
    except UnsupportedError:
        return None
    assert isinstance(timeout, (int, float))  # Or it would have been refused.
    return min(timeout, MOST_SECONDS)


def _terms(call: _Call) -> Terms:
    """Look at this rank's arguments, and at nobody else's."""
    from ..planners.fast import as_traffic

    _, dist = import_torch()
    ranks, rank = dist.get_world_size(call.group), dist.get_rank(call.group)
    if call.timeout is not None:
        check_seconds("timeout", call.timeout)
    if call.max_stage_bytes is not None:
        check_counts({"max_stage_bytes": call.max_stage_bytes})
    servers, gpus = _shape(call, ranks)
    _check_tensors(call)
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
    return Terms(sends, takes, rows, _row_bytes(call), str(call.input.dtype), servers, gpus, call.max_stage_bytes)


def _shape(call: _Call, ranks: int) -> tuple[int, int]:
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


def _check_tensors(call: _Call) -> None:
    torch, dist = import_torch()
    backend = dist.get_backend(call.group)
    home = {"nccl": "cuda", "gloo": "cpu"}.get(backend)
    for name, tensor in (("output", call.output), ("input", call.input)):
        if not isinstance(tensor, torch.Tensor):
            raise UnsupportedError(f"{name} is a {type(tensor).__name__}; expected a torch.Tensor")
        if tensor.layout is not torch.strided or not tensor.is_contiguous():
            raise UnsupportedError(f"{name} has shape {tuple(tensor.shape)} and is not contiguous; call .contiguous()")
        if tensor.is_conj() or tensor.is_neg():
            raise UnsupportedError(f"{name} is a lazy conjugate or negative; call .resolve_conj().resolve_neg()")
        if tensor.dim() == 0:
            raise UnsupportedError(f"{name} is a single number; expected a tensor with rows, such as .view(1) of it")
        if home is not None and tensor.device.type != home:
            raise UnsupportedError(
                f"{name} is on {tensor.device} but the group's backend is {backend}; expected a tensor on {home}"
            )
    output, mine = call.output, call.input
    if output.dtype != mine.dtype:
        raise UnsupportedError(f"output is {output.dtype} and input is {mine.dtype}; expected the same type")
    if output.device != mine.device:
        raise UnsupportedError(f"output is on {output.device} and input is on {mine.device}; expected one device")
    distance, size = output.data_ptr() - mine.data_ptr(), mine.element_size()
    if output.numel() and mine.numel() and -output.numel() * size < distance < mine.numel() * size:
        raise UnsupportedError("input and output overlap; give the output memory of its own")


def _row_bytes(call: _Call) -> int | None:
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


def _run(call: _Call, plan: OwnSteps) -> None:
    torch, dist = import_torch()
    rank = dist.get_rank(call.group)
    number = 0
    try:
        with torch.no_grad():
            memory = {
                "input": call.input.detach().view(-1).view(torch.uint8),
                "output": call.output.detach().view(-1).view(torch.uint8),
                "scratch": torch.empty(plan.scratch, dtype=torch.uint8, device=call.input.device),
            }
            for number, step in enumerate(plan.steps, start=1):  # noqa: B007 - told below.
                _run_step(call, step, memory)
    except RuntimeError as error:
        raise ProgramError(
            f"rank {rank} could not finish step {number} of {len(plan.steps)} of an all-to-all: {first_line(error)}"
        ) from error


def _run_step(call: _Call, step: OwnStep, memory: dict[str, Any]) -> None:
    def held(piece: Piece) -> Any:
        return memory[piece.memory][piece.begin : piece.end]

    for copy in step.before:
        held(copy.target).copy_(held(copy.source))
    for batch in step.batches:
        _exchange(call, batch, [held(each.piece) for each in batch])
    for copy in step.after:
        held(copy.target).copy_(held(copy.source))


def _exchange(call: _Call, batch: tuple[Operation, ...], views: list[Any]) -> None:
    """Post one batch and wait; `views` live until then."""
    _, dist = import_torch()
    operations = [
        dist.P2POp(
            dist.isend if each.is_send else dist.irecv, view, dist.get_global_rank(call.group, each.peer), call.group
        )
        for each, view in zip(batch, views, strict=True)
    ]
    for work in dist.batch_isend_irecv(operations):
        wait(work, call.timeout)
