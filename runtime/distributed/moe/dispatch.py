"""Dispatch of tokens to experts on other ranks, and combine of what these make of them, through torch.distributed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ....errors import UnsupportedError
from ....planners.pairs.dispatch import DispatchPlan, schedule_dispatch
from ....support.arrays import IntArray
from ..all_to_allv.all_to_all_single import bounded_timeout
from ..calls.agreement import connect
from ..calls.arguments import import_torch, joined_group
from ..calls.call_queue import run_in_order, run_now
from .arguments import Terms, agree_on_combine, agree_on_dispatch, check_dispatch, check_rows
from .hops import rank_hops
from .transport import Parts, Route, gather, scatter, sum_type

if TYPE_CHECKING:
    import torch
    import torch.distributed as dist


@dataclass(frozen=True, eq=False, repr=False)
class MoeHandle:
    """What the combine needs to know of a dispatch.

    Attributes
    ----------
    plan : DispatchPlan
        With the bound of all schedules, in tokens; the same on all ranks.
    route : Route
        Hops of this rank's rows.
    order : torch.Tensor of int64
        Of the received tokens among arrived rows.
    rows, choices : torch.Tensor of int64
        Received token and choice of each pair.
    anchor : torch.Tensor
        Connects the combine's gradient with the dispatch's on ranks without tokens.
    """

    plan: DispatchPlan
    route: Route
    order: torch.Tensor
    rows: torch.Tensor
    choices: torch.Tensor
    anchor: torch.Tensor

    @property
    def sent_bytes(self) -> IntArray:
        """Bytes of rows that this rank has sent to each so far, in the dispatch, combines and their gradients."""
        return self.route.sent.copy()


class Dispatched(NamedTuple):
    """Tokens that a rank received, and which of them go to which of its experts.

    Attributes
    ----------
    tokens : torch.Tensor
        Each once, in the order of their ranks and places there.
    rows : torch.Tensor of int64
        Row of `tokens` for each pair of a token and an expert of this rank, in the order of experts, then of tokens.
    counts : torch.Tensor of int64
        Pairs of each expert of this rank, in the order of the experts' numbers.
    weights : torch.Tensor or None
        Of each pair, if the dispatch was given weights.
    handle : MoeHandle
        For `moe_combine`.
    """

    tokens: torch.Tensor
    rows: torch.Tensor
    counts: torch.Tensor
    weights: torch.Tensor | None
    handle: MoeHandle


def moe_dispatch(
    tokens: torch.Tensor,
    indices: torch.Tensor,
    placement: npt.ArrayLike | torch.Tensor,
    weights: torch.Tensor | None = None,
    group: dist.ProcessGroup | None = None,
    *,
    servers: int | None = None,
    gpus_per_server: int | None = None,
    stages: str | None = None,
    max_stage_tokens: int | None = None,
    timeout: float | None = None,
) -> Dispatched:
    """Send each token once to every server with experts of it, where one GPU copies it to the others.

    All ranks of the group have to call.  They compare their arguments and exchange counts, and each works out the same
    plan.  Wrong arguments on any rank raise on every rank.  Gradients of tokens and weights are combined in reverse.
    The result is what this rank's experts are to work on.

    Raises `UnsupportedError` if arguments of any rank are wrong, or differ where they must not; `ProgramError` if the
    exchange fails or is late.

    Parameters
    ----------
    tokens : torch.Tensor
        Contiguous, of shape (tokens, columns); the number of tokens may differ between ranks.
    indices : torch.Tensor
        Experts of each token, whole numbers of shape (tokens, choices).
    placement : array_like
        The rank of each expert in the group, the same on all ranks.
    weights : torch.Tensor, optional
        Of each choice, which experts get along with the token.
    group : torch.distributed.ProcessGroup, optional
        None is the default group.
    servers, gpus_per_server : int, optional
        As for `all_to_all_single`; at most 8 GPUs.
    stages, max_stage_tokens : str and int, optional
        As for `collopt.planners.schedule_dispatch`.
    timeout : float, optional
        Seconds that each step may take; None leaves it to the process group.

    Notes
    -----
    A row carries its token, then 4 bytes that number it, 4 for each choice, and the weights.
    """
    torch, _ = import_torch()
    rank, p2p = joined_group(group, tokens)
    shape, limits = (servers, gpus_per_server), (stages, max_stage_tokens, timeout)
    terms: Terms | UnsupportedError
    try:
        terms = check_dispatch(tokens, indices, placement, weights, p2p, shape, *limits)
    except UnsupportedError as error:
        terms = error
    seconds = bounded_timeout(timeout)
    agreed = run_in_order(p2p, partial(agree_on_dispatch, terms, p2p, seconds))
    assert isinstance(terms, Terms)  # Or the agreement would have raised it.
    connect(p2p, tokens.device, seconds)
    numbered = np.column_stack([np.arange(len(tokens)), terms.indices]).astype(np.int32)
    header = torch.from_numpy(numbered).to(tokens.device)
    given = (tokens,) if weights is None else (tokens, weights)
    width = sum(each.shape[1] * each.element_size() for each in (header, *given))
    plan = schedule_dispatch(agreed.counts, token_bytes=width, stages=stages, max_stage_tokens=max_stage_tokens)
    hops = rank_hops(plan.schedule, rank, agreed.own, agreed.kinds)
    route = Route(hops, len(tokens), p2p, seconds, np.zeros(len(agreed.kinds), dtype=np.int64))
    anchor = torch.zeros((), device=tokens.device, requires_grad=agreed.needs_gradient)
    received, experts, order, anchor, *floats = _functions()[0].apply(route, header, anchor, *given)
    mine = np.flatnonzero(terms.homes == rank)
    place = np.full(len(terms.homes), -1)
    place[mine] = np.arange(len(mine))
    local = torch.from_numpy(place).to(tokens.device)[experts.long()]
    rows, choices = (local >= 0).nonzero(as_tuple=True)
    of_pairs = local[rows, choices]
    by_expert = torch.sort(of_pairs, stable=True).indices
    rows, choices = rows[by_expert], choices[by_expert]
    handle = MoeHandle(plan, route, order, rows, choices, anchor)
    factors = floats[0][rows, choices] if floats else None
    return Dispatched(received, rows, torch.bincount(of_pairs, minlength=len(mine)), factors, handle)


def moe_combine(expert_outputs: torch.Tensor, handle: MoeHandle, weights: torch.Tensor | None = None) -> torch.Tensor:
    """Add up what experts made of each token, in servers first, and return the sums to the tokens' ranks.

    All ranks of the group have to call.  The result has a row for each token of this rank, zero for one without
    experts.  Errors as for `moe_dispatch`.

    Parameters
    ----------
    expert_outputs : torch.Tensor
        A row for each pair of `Dispatched.rows`, in their order; columns and type may differ from the tokens'.
    handle : MoeHandle
        Of the dispatch.
    weights : torch.Tensor, optional
        Factor of each pair, such as `Dispatched.weights`.

    Notes
    -----
    Sums are in the type of `expert_outputs`, of float16 and bfloat16 in float32, rounded three times: for what one rank
    has of a token, for what its server has, and at the end; once more for tokens that a proxy passes on.  The order is
    that of choices, then of ranks and of stages, so results are the same in every run.
    """
    torch, _ = import_torch()
    route = handle.route
    error: UnsupportedError | None = None
    try:
        _check_combine(expert_outputs, handle, weights)
    except UnsupportedError as refused:
        error = refused
    given = [expert_outputs, handle.anchor] if weights is None else [expert_outputs, handle.anchor, weights]
    needs = error is None and torch.is_grad_enabled() and any(tensor.requires_grad for tensor in given)
    agree = partial(agree_on_combine, expert_outputs, needs, error, route.group, route.timeout)
    needs = run_in_order(route.group, agree)
    dtype = expert_outputs.dtype
    values = expert_outputs.to(sum_type(dtype))
    if weights is not None:
        values = values * weights.to(values.dtype)[:, None]
    sums = values.new_zeros(len(route.hops.origins), values.shape[1])
    # A token has one expert for each choice, so no row comes twice and no order is left open.
    for choice in sorted({0, *handle.choices.tolist()}):  # Also without pairs, which gives experts gradients of 0.
        chosen = handle.choices == choice
        sums = sums.index_add(0, handle.rows[chosen], values[chosen])
    anchor = (
        handle.anchor if handle.anchor.requires_grad else sums.new_zeros((), dtype=torch.float32).requires_grad_(needs)
    )
    return _functions()[1].apply(route, handle.order, sums.to(dtype), anchor)  # type: ignore[no-any-return]


def _check_combine(outputs: Any, handle: MoeHandle, weights: Any) -> None:
    """Refuse expert outputs or weights that do not fit a dispatch."""
    pairs = len(handle.rows)
    check_rows("expert_outputs", outputs, handle.route.group)
    if len(outputs) != pairs:
        raise UnsupportedError(f"expert_outputs have {len(outputs)} rows; expected {pairs}, one for each pair")
    torch, _ = import_torch()
    if weights is not None and (not isinstance(weights, torch.Tensor) or weights.shape != (pairs,)):
        raise UnsupportedError(f"weights have shape {tuple(np.shape(weights))}; expected one for each of {pairs} pairs")


def _run(route: Route, way: Callable[[Route, Parts], Parts], parts: Parts) -> Parts:
    """Move rows after the earlier calls of the group."""
    results: list[Parts] = []
    run_now(route.group, lambda: results.append(way(route, parts)))
    return results[0]


def _back(route: Route, order: torch.Tensor, parts: Parts) -> Parts:
    """Return rows of received tokens to their ranks, and add up there."""
    torch, _ = import_torch()
    return _run(route, gather, [torch.empty_like(part).index_copy_(0, order, part) for part in parts])


@lru_cache(maxsize=1)
def _functions() -> tuple[Any, Any]:
    """Define the functions of torch's autograd, each the other's gradient, as torch is imported late."""
    torch, _ = import_torch()

    class Dispatch(torch.autograd.Function):  # type: ignore[misc, name-defined]
        @staticmethod
        def forward(ctx: Any, route: Route, header: Any, anchor: Any, *given: Any) -> tuple[Any, ...]:
            arrived = _run(route, scatter, [header, *given])
            origins = torch.from_numpy(route.hops.origins).to(header.device)
            order = torch.argsort((origins << 32) + arrived[0][:, 0])
            numbers, received, *floats = (part[order] for part in arrived)
            experts = numbers[:, 1:].contiguous()
            ctx.route, ctx.order = route, order
            ctx.mark_non_differentiable(experts, order)
            return received, experts, order, anchor.clone(), *floats

        @staticmethod
        def backward(ctx: Any, received: Any, _experts: Any, _order: Any, anchor: Any, *floats: Any) -> tuple[Any, ...]:
            return None, None, anchor, *_back(ctx.route, ctx.order, [received, *floats])

    class Combine(torch.autograd.Function):  # type: ignore[misc, name-defined]
        @staticmethod
        def forward(ctx: Any, route: Route, order: Any, sums: Any, _anchor: Any) -> Any:
            ctx.route, ctx.order = route, order
            return _back(route, order, [sums])[0]

        @staticmethod
        def backward(ctx: Any, gradient: Any) -> tuple[Any, ...]:
            spread = _run(ctx.route, scatter, [gradient.contiguous()])[0]
            return None, None, spread[ctx.order], gradient.new_zeros((), dtype=torch.float32)

    return Dispatch, Combine
