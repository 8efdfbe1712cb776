"""All-to-all of unequal parts through torch.distributed, by the stages of FAST, also with gradients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

from ...errors import ProgramError
from ..execution.agreement import (
    ALL_TO_ALL,
    bounded_timeout,
    checked,
    connect,
    explained,
    first_line,
    post,
    wait_for_all,
)
from ..execution.arguments import import_torch, joined_group
from ..execution.call_queue import TAG, AsyncWork, completed_work, run_in_order, run_now, start
from .arguments import AllToAllCall, agreed_exchange, check_all_to_all
from .steps import RankSteps, rank_steps

if TYPE_CHECKING:
    import numpy.typing as npt
    import pandas as pd
    import torch
    import torch.distributed as dist

    from ...schedules import TwoTierModel
    from ...support.quantities import Exact


def all_to_all_single(
    output: torch.Tensor,
    input: torch.Tensor,  # noqa: A002 - torch.distributed's own name for it.
    output_split_sizes: list[int] | None = None,
    input_split_sizes: list[int] | None = None,
    group: dist.ProcessGroup | None = None,
    async_op: bool = False,
    *,
    servers: int | None = None,
    gpus_per_server: int | Sequence[int] | None = None,
    traffic: npt.ArrayLike | pd.DataFrame | None = None,
    stages: str | None = None,
    max_stage_bytes: int | None = None,
    max_scratch_bytes: int | None = None,
    nics: Sequence[Sequence[Exact]] | None = None,
    model: TwoTierModel | None = None,
    timeout: float | None = None,
) -> AsyncWork | None:
    """Send every rank its part of `input`: as `torch.distributed.all_to_all_single` does, but in balanced stages.

    All ranks of the group have to call.  They exchange their splits, or only compare `traffic` if it is given; then
    each works out the same schedule, or has it from one of the last calls.  Wrong arguments on any rank raise on every
    rank, before `output` is written to.

    Raises `UnsupportedError` if this rank's arguments are wrong, or the scratch does not suffice; `ProgramError` if
    those of another are, ranks disagree, or the exchange fails or is late: with `async_op`, ``wait()`` raises it.

    Parameters
    ----------
    output, input : torch.Tensor
        Contiguous, of one type on one device, apart from each other, with rows of the same size.
    output_split_sizes, input_split_sizes : list of int, optional
        Rows (along dimension 0) from each rank and to each rank; equal parts if None.
    group : torch.distributed.ProcessGroup, optional
        None is the default group.
    async_op : bool
        Return when the ranks have agreed, while the data is still on its way.  Each rank may choose for itself.
    servers, gpus_per_server : int, optional
        Rank r of the group is GPU ``r % gpus_per_server`` of server ``r // gpus_per_server``; or a list has the GPUs of
        each server in turn.  One follows from the other.  By default the environment variable ``LOCAL_WORLD_SIZE``
        says how many a server has, if it divides the ranks, otherwise one.
    traffic : array_like or DataFrame of integers, shape (ranks, ranks), optional
        Rows, not bytes, from each rank to each, the same on all ranks.  Saves an exchange of the splits.
    stages, max_stage_bytes, max_scratch_bytes : str and int, optional
        As for `collopt.planners.schedule_all_to_allv`, the same on all ranks.
    nics : sequence of sequence of numbers, optional
        As for `schedule_all_to_allv`, at most 32 times their greatest common divisor; the same on all ranks.
    model : TwoTierModel, optional
        Costs by which the stages are chosen, the same on all ranks; by default the H200 testbed of the FAST paper.
    timeout : float, optional
        Seconds that one batch of messages may take; None leaves it to the process group.  With one, the process waits
        for every batch, which with NCCL only the stream does otherwise.

    Returns
    -------
    AsyncWork or None
        None, or with `async_op` a work with ``wait()``, ``is_completed()`` and ``get_future()``.

    Notes
    -----
    Scratch is at most `max_scratch_bytes`, or four times the longest stage; with equal NICs by default at most a
    quarter of the average bytes that a rank sends, or 4 MiB.

    With `async_op` CPU tensors go in a thread, and CUDA tensors on a stream of their own.  As the ranks agree on every
    call, on CPU tensors every call waits for those of the group that still go on.
    """
    call, job = prepared(
        AllToAllCall(
            output, input, output_split_sizes, input_split_sizes, group, async_op, servers, gpus_per_server, traffic,
            stages, max_stage_bytes, max_scratch_bytes, nics, model, timeout,
        )
    )  # fmt: skip
    if job is None:
        return completed_work([output]) if async_op else None
    if async_op:
        return start(call.group, job, [output], [input])
    run_now(call.group, job)
    return None


def prepared(call: AllToAllCall) -> tuple[AllToAllCall, Callable[[], None] | None]:
    """Check the arguments of `all_to_all_single` on all ranks; return the call and the job that runs it, if any."""
    rank, p2p = joined_group(call.group, call.output, call.input)
    call = call._replace(group=p2p)
    terms = checked(ALL_TO_ALL, partial(check_all_to_all, call))
    call = call._replace(timeout=bounded_timeout(call.timeout))
    exchange = run_in_order(p2p, partial(agreed_exchange, terms, p2p, call.timeout))
    connect(p2p, call.input.device, call.timeout)
    return call, partial(run, call, rank_steps(exchange, rank)) if exchange.row_bytes else None


def run(call: AllToAllCall, plan: RankSteps) -> None:
    """Run all batches, one after the other."""
    torch, _ = import_torch()
    step = -1
    try:
        # Unlike no_grad this also lets us write to tensors that were made so.
        with torch.inference_mode():
            memories = (
                call.input.detach().view(-1).view(torch.uint8),
                call.output.detach().view(-1).view(torch.uint8),
                torch.empty(plan.scratch, dtype=torch.uint8, device=call.input.device),
            )
            source, target, length = plan.own
            memories[1][target : target + length].copy_(memories[0][source : source + length])
            for number, step in enumerate(plan.steps.tolist()):  # noqa: B007 - told below.
                # The pieces of memory live until the wait is over.
                messages = [
                    (peer, is_send, memories[memory][place : place + length])
                    for peer, is_send, memory, place, length in plan.batch(number)
                ]
                wait_for_all(post(call.group, TAG, messages), call.timeout)
    except (RuntimeError, ValueError) as error:  # The latter if the group has been destroyed meanwhile.
        raise ProgramError(
            f"rank {call.group.rank()} could not finish step {step + 1} of {plan.num_steps} of an all-to-all: "
            f"{first_line(error)}{explained(call.group, 'in an all-to-all')}"
        ) from error


def differentiable_all_to_all(
    group: dist.ProcessGroup,
    input: torch.Tensor,  # noqa: A002 - torch.distributed's own name for it.
    output_split_sizes: list[int] | None = None,
    input_split_sizes: list[int] | None = None,
    use_nccl_stream: bool = False,
    **options: Any,
) -> torch.Tensor:
    """Send every rank its rows of `input` as `all_to_all_single` does, and gradients back.

    The result has rows from each rank in turn.

    Parameters
    ----------
    group : torch.distributed.ProcessGroup
        All its ranks have to call, and to go back.
    input : torch.Tensor
        Rows for each rank in turn; made contiguous.
    output_split_sizes, input_split_sizes : list of int, optional
        Rows from each rank and to each rank; equal parts if None.
    use_nccl_stream : bool
        Has no effect: messages go on streams of the group's backend as it is.
    **options : object
        Further options of `all_to_all_single`, such as ``gpus_per_server``.

    Notes
    -----
    The arguments are those of ``all_to_all`` of Megatron Core 0.20 (``megatron/core/tensor_parallel/mappings.py`` line
    558), which its ``MoEAlltoAllTokenDispatcher`` calls by that name; the first two are those of ``_AllToAll.apply`` of
    DeepSpeed 0.19.6 (``deepspeed/moe/sharded_moe.py`` line 97).
    """
    del use_nccl_stream
    exchange = partial(all_to_all_single, group=group, **options)
    result: Any = _function().apply(input, exchange, output_split_sizes, input_split_sizes)
    return result  # type: ignore[no-any-return]


@lru_cache(maxsize=1)
def _function() -> Any:
    """Define the function of torch's autograd, as torch is imported late."""
    torch, _ = import_torch()

    class AllToAll(torch.autograd.Function):  # type: ignore[misc, name-defined]
        @staticmethod
        def forward(ctx: Any, rows: Any, exchange: Any, takes: Any, sends: Any) -> Any:
            ctx.exchange, ctx.takes, ctx.sends = exchange, takes, sends
            return _exchanged(rows, exchange, takes, sends)

        @staticmethod
        def backward(ctx: Any, gradient: Any) -> tuple[Any, ...]:
            return _exchanged(gradient, ctx.exchange, ctx.sends, ctx.takes), None, None, None

    return AllToAll


def _exchanged(rows: Any, exchange: Any, takes: Any, sends: Any) -> Any:
    output = rows.new_empty((len(rows) if takes is None else sum(takes), *rows.shape[1:]))
    exchange(output, rows.contiguous(), takes, sends)
    return output
