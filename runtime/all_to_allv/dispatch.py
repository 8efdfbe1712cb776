"""Dispatch of tokens to experts on other ranks, and combine of the experts' outputs, through torch.distributed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, Generic, Literal, NamedTuple, TypeVar, overload

import numpy as np
import numpy.typing as npt

from ...errors import ColloptError, UnsupportedError
from ...planners.all_to_all.dispatch import DispatchPlan, schedule_dispatch
from ...support.arrays import IntArray
from ..execution.agreement import COMBINE, DISPATCH, bounded_timeout, checked, connect
from ..execution.arguments import check_async, import_torch, joined_group
from ..execution.call_queue import AsyncWork, run_in_order, run_now, start
from .arguments import (
    DispatchCall,
    DispatchTerms,
    agree_on_combine,
    agree_on_dispatch,
    check_dispatch,
    check_rows,
    swapped,
)
from .dispatch_rounds import ARRIVED, MAX_TOKENS, Parts, Peers, Route, gather, own_rows, scatter, sum_type

if TYPE_CHECKING:
    import torch
    import torch.distributed as dist


@dataclass(frozen=True, eq=False, repr=False)
class MoeHandle:
    """A dispatch as the combine needs it.

    Attributes
    ----------
    plan : DispatchPlan
        With the bound of all schedules, in tokens; the same on all ranks.
    route : Route
        Hops of this rank's rows.
    order : torch.Tensor of int64
        Of the received tokens among arrived rows, which have those that are only relayed, too.
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
        return self.route.peers.sent.copy()


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


@overload
def moe_dispatch(*arguments: Any, async_op: Literal[True], **options: Any) -> MoeWork[Dispatched]: ...
@overload
def moe_dispatch(*arguments: Any, async_op: Literal[False] = False, **options: Any) -> Dispatched: ...
def moe_dispatch(  # type: ignore[misc]  # Its overloads only tell results apart.
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
    relay_rounds: int | None = None,
    timeout: float | None = None,
    async_op: bool = False,
) -> Dispatched | MoeWork[Dispatched]:
    """Send each token once to every server with experts of it, where one GPU copies it to the others.

    Where batches are so unequal that it pays, servers that get a token send it on to others.  Gradients of tokens and
    weights are combined in reverse.  The result is the work of this rank's experts.

    All ranks of the group have to call; wrong arguments on any rank raise on every rank.

    Raises `UnsupportedError` if this rank's arguments are wrong; `ProgramError` if those of another are, ranks
    disagree, or the exchange fails or is late.

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
    stages, max_stage_tokens, relay_rounds : str and int, optional
        As for `collopt.planners.schedule_dispatch`; relays among at most 8 servers.
    timeout : float, optional
        Seconds that each step may take; None leaves it to the process group.
    async_op : bool
        Return a work with ``wait()`` for the result, while rows are under way.  Each rank may choose for itself.

    Notes
    -----
    A row carries its token, then 4 bytes that number it, 4 for each choice, and the weights.
    """
    torch, _ = import_torch()
    _, p2p = joined_group(group, tokens)
    call = DispatchCall(
        tokens, indices, placement, weights, p2p, servers, gpus_per_server, stages, max_stage_tokens, relay_rounds,
        timeout, async_op,
    )  # fmt: skip
    terms = checked(DISPATCH, partial(check_dispatch, call))
    route, needs_gradient = run_in_order(p2p, partial(_planned, call, terms))
    assert isinstance(terms, DispatchTerms)  # Or the agreement would have raised it.
    numbers = route.first_numbers[route.rank] + np.arange(len(tokens)) + route.own.chiefs * MAX_TOKENS
    header = torch.from_numpy(np.column_stack([numbers, terms.indices]).astype(np.int32)).to(tokens.device)
    experts = np.flatnonzero(terms.homes == route.rank)
    places = np.full(len(terms.homes), -1)
    places[experts] = np.arange(len(experts))
    anchor = torch.zeros((), device=tokens.device, requires_grad=needs_gradient)
    job = partial(_received, route, [header, *call.inputs], torch.from_numpy(places).to(tokens.device))
    finish = partial(_dispatched, route, anchor, call.inputs, len(experts))
    work = MoeWork(p2p, job, finish, call.inputs, async_op)
    return work if async_op else work.wait()


def _planned(call: DispatchCall, terms: DispatchTerms | ColloptError) -> tuple[Route, bool]:
    """Agree on a dispatch with all ranks; plan it, and say whether any needs gradients."""
    _, dist = import_torch()
    group, seconds = call.group, bounded_timeout(call.timeout)
    agreed = agree_on_dispatch(terms, call.relay_rounds, group, seconds)
    assert isinstance(terms, DispatchTerms)
    connect(group, call.tokens.device, seconds)
    choices, rank = terms.indices.shape[1], dist.get_rank(group)
    plan = schedule_dispatch(
        agreed.counts,
        token_bytes=4 * (1 + choices) + sum(tensor.shape[1] * tensor.element_size() for tensor in call.inputs),
        stages=call.stages,
        max_stage_tokens=call.max_stage_tokens,
        relay_rounds=call.relay_rounds,
    )
    peers = Peers(group, seconds, np.zeros(dist.get_world_size(group), dtype=np.int64))
    own = own_rows(plan, rank, agreed.masks)
    route = Route(plan, rank, own, terms.homes, agreed.first_numbers, choices, peers)
    # Counts of the first round are told here, as agreements are, and later ones like rows, while other calls go on.
    route.add_hops(partial(swapped, group=group, timeout=seconds), own.rounds[:0], own.masks[:0])
    return route, agreed.needs_gradient


def _received(route: Route, parts: Parts, places: torch.Tensor) -> Parts:
    """Move rows; return order and local experts, -1 for none, of those that are wanted here, then their other parts."""
    torch, _ = import_torch()
    header, *contents = scatter(route, parts)
    local = places[header[:, 1:].long()]
    rows = (local >= 0).any(dim=1).nonzero()[:, 0]
    order = rows[torch.argsort(header[rows, 0] % MAX_TOKENS)]
    return [order, local[order], *(part[order] for part in contents)]


def _dispatched(route: Route, anchor: torch.Tensor, inputs: Parts, experts: int, parts: Parts) -> Dispatched:
    """Connect received rows with the tensors that they came from, and find the pairs of this rank's experts."""
    torch, _ = import_torch()
    order, local, *contents = parts
    anchor, received, *floats = _functions()[0].apply(route, order, contents, anchor, *inputs)
    rows, choices = (local >= 0).nonzero(as_tuple=True)
    of_pairs = local[rows, choices]
    by_expert = torch.sort(of_pairs, stable=True).indices
    rows, choices = rows[by_expert], choices[by_expert]
    handle = MoeHandle(route.plan, route, order, rows, choices, anchor)
    factors = floats[0][rows, choices] if floats else None
    return Dispatched(received, rows, torch.bincount(of_pairs, minlength=experts), factors, handle)


@overload
def moe_combine(*arguments: Any, async_op: Literal[True], **options: Any) -> MoeWork[torch.Tensor]: ...
@overload
def moe_combine(*arguments: Any, async_op: Literal[False] = False, **options: Any) -> torch.Tensor: ...
def moe_combine(  # type: ignore[misc]
    expert_outputs: torch.Tensor, handle: MoeHandle, weights: torch.Tensor | None = None, *, async_op: bool = False
) -> torch.Tensor | MoeWork[torch.Tensor]:
    """Add up the experts' outputs of each token, in servers first, and return the sums to the tokens' ranks.

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
    async_op : bool
        As for `moe_dispatch`.

    Notes
    -----
    Sums are in the type of `expert_outputs`, of float16 and bfloat16 in float32, rounded for the sum of a rank, for
    that of a server, and at the end; once more for tokens that a proxy passes on, and twice for relayed ones.  Their
    order is that of choices, then of ranks and of stages, so all runs give the same bits.
    """
    torch, _ = import_torch()
    route = handle.route
    error = checked(COMBINE, partial(_check_combine, expert_outputs, handle, weights, async_op))
    inputs = [expert_outputs, handle.anchor] if weights is None else [expert_outputs, handle.anchor, weights]
    needs = error is None and torch.is_grad_enabled() and any(tensor.requires_grad for tensor in inputs)
    agree = partial(agree_on_combine, expert_outputs, needs, error, route.peers.group, route.peers.timeout)
    needs = run_in_order(route.peers.group, agree)
    dtype = expert_outputs.dtype
    values = expert_outputs.to(sum_type(dtype))
    if weights is not None:
        values = values * weights.to(values.dtype)[:, None]
    sums = values.new_zeros(len(handle.order), values.shape[1])
    # A token has one expert for each choice, so no row comes twice and no order is left open.
    for choice in sorted({0, *handle.choices.tolist()}):  # Also without pairs, which gives experts gradients of 0.
        of_choice = handle.choices == choice
        sums = sums.index_add(0, handle.rows[of_choice], values[of_choice])
    anchor = handle.anchor
    if not anchor.requires_grad:
        anchor = sums.new_zeros((), dtype=torch.float32).requires_grad_(needs)
    sums = sums.to(dtype)
    finish = partial(_functions()[1].apply, route, handle.order, sums, anchor)
    work = MoeWork(route.peers.group, partial(_back, route, handle.order, [sums]), finish, [sums], async_op)
    return work if async_op else work.wait()


def _check_combine(outputs: Any, handle: MoeHandle, weights: Any, async_op: object) -> None:
    """Refuse expert outputs or weights that do not fit a dispatch, or an asynchronous call that cannot be."""
    pairs = len(handle.rows)
    check_rows("expert_outputs", outputs, handle.route.peers.group)
    if len(outputs) != pairs:
        raise UnsupportedError(f"expert_outputs have {len(outputs)} rows; expected {pairs}, one for each pair")
    torch, _ = import_torch()
    if weights is not None:
        if not isinstance(weights, torch.Tensor) or weights.shape != (pairs,):
            raise UnsupportedError(
                f"weights have shape {tuple(np.shape(weights))}; expected one for each of {pairs} pairs"
            )
        if weights.layout is not torch.strided or weights.device != outputs.device:
            raise UnsupportedError(
                f"weights are {weights.layout} on {weights.device}; expected a dense tensor on {outputs.device}"
            )
    check_async(async_op, outputs, handle.route.peers.timeout)


def _back(route: Route, order: torch.Tensor, parts: Parts) -> Parts:
    """Return rows of received tokens to their ranks, and add up there."""
    arrived = sum(int(hops.sizes[ARRIVED]) for hops in route.hops)
    return gather(route, [part.new_zeros(arrived, part.shape[1]).index_copy_(0, order, part) for part in parts])


def _run(route: Route, way: Callable[[], Parts]) -> Parts:
    """Move rows after the earlier calls of the group."""
    results: list[Parts] = []
    run_now(route.peers.group, lambda: results.append(way()))
    return results[0]


@lru_cache(maxsize=1)
def _functions() -> tuple[Any, Any]:
    """Define functions of autograd, each the other's gradient, for rows that have moved; torch is imported late."""
    torch, _ = import_torch()

    class Dispatch(torch.autograd.Function):  # type: ignore[misc, name-defined]
        @staticmethod
        def forward(ctx: Any, route: Route, order: Any, received: Parts, anchor: Any, *_inputs: Any) -> tuple[Any, ...]:
            ctx.route, ctx.order = route, order
            return anchor.clone(), *received

        @staticmethod
        def backward(ctx: Any, anchor: Any, *received: Any) -> tuple[Any, ...]:
            returned = _run(ctx.route, partial(_back, ctx.route, ctx.order, list(received)))
            return None, None, None, anchor, *returned

    class Combine(torch.autograd.Function):  # type: ignore[misc, name-defined]
        @staticmethod
        def forward(ctx: Any, route: Route, order: Any, _sums: Any, _anchor: Any, combined: Parts) -> Any:
            ctx.route, ctx.order = route, order
            return combined[0]

        @staticmethod
        def backward(ctx: Any, gradient: Any) -> tuple[Any, ...]:
            spread = _run(ctx.route, partial(scatter, ctx.route, [gradient.contiguous()]))[0]
            return None, None, spread[ctx.order], gradient.new_zeros((), dtype=torch.float32), None

    return Dispatch, Combine


Result = TypeVar("Result")


class MoeWork(Generic[Result]):
    """An asynchronous dispatch or combine; leave the tensors that it was given alone until `wait` has returned."""

    def __init__(
        self, group: Any, job: Callable[[], Parts], finish: Callable[[Parts], Result], tensors: Parts, async_op: bool
    ) -> None:
        torch, _ = import_torch()
        self._finish, self._results = finish, list[Result]()
        self._parts: Parts = []
        self._work: AsyncWork | None = None
        self._needs_gradient = torch.is_grad_enabled()

        def run() -> None:
            with torch.no_grad():
                self._parts = job()

        if async_op:
            self._work = start(group, run, [], tensors)
        else:
            run_now(group, run)

    def wait(self, timeout: float | timedelta | None = None) -> Result:
        """Return the result of the call; may be called any number of times.

        If there are gradients, all ranks have to wait for their works in the same order, as backward passes go back in
        that order.  On CUDA tensors the current stream waits and this process does not, but for a timeout in seconds.
        """
        if self._results:
            return self._results[0]
        torch, _ = import_torch()
        if self._work is not None:
            self._work.wait(timeout)
            for part in self._parts:
                if part.is_cuda:  # It was made on the stream of the exchange.
                    part.record_stream(torch.cuda.current_stream(part.device))
        with torch.set_grad_enabled(self._needs_gradient):
            self._results.append(self._finish(self._parts))
        return self._results[0]

    def is_completed(self) -> bool:
        """Whether the exchange has finished or failed."""
        return self._work is None or self._work.is_completed()
