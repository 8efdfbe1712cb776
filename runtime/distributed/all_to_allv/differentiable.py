"""All-to-all with gradients, in the form in which libraries that train mixtures of experts call theirs."""

from __future__ import annotations

from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

from ..calls.arguments import import_torch
from .all_to_all_single import all_to_all_single

if TYPE_CHECKING:
    import torch
    import torch.distributed as dist


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
        def forward(ctx: Any, given: Any, exchange: Any, takes: Any, sends: Any) -> Any:
            ctx.exchange, ctx.takes, ctx.sends = exchange, takes, sends
            return _exchanged(given, exchange, takes, sends)

        @staticmethod
        def backward(ctx: Any, gradient: Any) -> tuple[Any, ...]:
            return _exchanged(gradient, ctx.exchange, ctx.sends, ctx.takes), None, None, None

    return AllToAll


def _exchanged(given: Any, exchange: Any, takes: Any, sends: Any) -> Any:
    output = given.new_empty((len(given) if takes is None else sum(takes), *given.shape[1:]))
    exchange(output, given.contiguous(), takes, sends)
    return output
