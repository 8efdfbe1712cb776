"""Argument checks of one rank's dispatch or combine, and agreement of all ranks on the call."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ...errors import ProgramError, UnsupportedError
from ...planners.all_to_all.dispatch import (
    MAX_GPUS,
    MAX_ROUNDS,
    DispatchCounts,
    as_indices,
    as_placement,
    class_counts,
    pays_to_relay,
)
from ...planners.all_to_all.fast import STAGES
from ...support.arrays import IntArray
from ..execution.agreement import coded, compare, digest, first_line, gathered, refuse, wait
from ..execution.arguments import agreement_device, check_async, check_tensor, import_torch, served_devices
from ..programs.program import check_counts
from .arguments import check_limits, servers_and_gpus
from .dispatch_rounds import MAX_RELAY_SERVERS, MAX_TOKENS

if TYPE_CHECKING:
    import torch

    from ...solvers.steps.dispatch import MaskArray

SAME = (
    "servers", "gpus_per_server", "max_stage_tokens", "relay_rounds", "stages", "the columns of tokens",
    "the columns of indices",
)  # fmt: skip
DIGESTED = ("the type of tokens", "the kind of device", "the placement of experts", "the type of weights")
DISPATCH, COMBINE = "the dispatch", "the combine"


class Terms(NamedTuple):
    """Checked arguments of one rank: experts and their ranks, servers, GPUs, and numbers that all ranks compare."""

    indices: IntArray
    homes: IntArray
    servers: int
    gpus: int
    numbers: list[int]
    needs_gradient: bool


class Agreed(NamedTuple):
    """What all ranks agreed on, the GPUs that this rank's tokens go to, and the tokens of the ranks before each."""

    counts: DispatchCounts
    masks: MaskArray
    first_numbers: IntArray
    needs_gradient: bool


def check_dispatch(
    tokens: Any,
    indices: Any,
    placement: Any,
    weights: Any,
    group: Any,
    shape: tuple[int | None, int | None],
    stages: str | None,
    max_stage_tokens: int | None,
    relay_rounds: int | None,
    timeout: float | None,
    async_op: object,
) -> Terms:
    """Check the arguments of a dispatch; `shape` is the number of servers and of GPUs per server."""
    torch, dist = import_torch()
    ranks = dist.get_world_size(group)
    check_limits(timeout, stages, {"max_stage_tokens": max_stage_tokens})
    # Shape of the network, and the options that depend on it.
    servers, gpus = servers_and_gpus(*shape, ranks)
    if relay_rounds is not None:
        check_counts({"relay_rounds": relay_rounds}, minimum=0)
        highest = MAX_ROUNDS if servers <= MAX_RELAY_SERVERS else 0
        if relay_rounds > highest:
            raise UnsupportedError(
                f"relay_rounds is {relay_rounds}; expected at most {highest} among {servers} servers"
            )
    if gpus > MAX_GPUS:
        raise UnsupportedError(f"gpus_per_server is {gpus}; expected at most {MAX_GPUS} in a dispatch")
    # Tensors, and the experts of tokens.
    check_rows("tokens", tokens, group)
    check_async(async_op, tokens, timeout)
    homes = as_placement(_array(placement, "placement"), ranks)
    experts = as_indices(_array(indices, "indices"), len(homes))
    if len(experts) != len(tokens):
        raise UnsupportedError(f"there are indices of {len(experts)} tokens; expected {len(tokens)}, as many as rows")
    if weights is not None:
        check_rows("weights", weights, group, 0)
        if weights.shape != experts.shape or not weights.is_floating_point() or weights.device != tokens.device:
            raise UnsupportedError(
                f"weights have shape {tuple(weights.shape)} and type {weights.dtype}; expected {experts.shape} as the "
                "indices, a floating-point type, and the device of the tokens"
            )
    # Numbers that all ranks compare.
    kinds = (str(tokens.dtype), tokens.device.type, homes.tobytes().hex(), str(getattr(weights, "dtype", None)))
    way = coded(None if stages is None else STAGES[stages])
    limits = coded(max_stage_tokens), coded(relay_rounds)
    numbers = [servers, gpus, *limits, way, tokens.shape[1], experts.shape[1]]
    numbers += [digest(kind.encode()) for kind in kinds]
    inputs = [tokens] if weights is None else [tokens, weights]
    needs = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in inputs)
    return Terms(experts, homes, servers, gpus, numbers, needs)


def check_rows(name: str, tensor: Any, group: Any, min_columns: int = 1) -> None:
    """Refuse anything but a contiguous matrix of so many columns at least, on a device that the group serves."""
    check_tensor(name, tensor)
    if tensor.dim() != 2 or tensor.shape[1] < min_columns:
        raise UnsupportedError(f"{name} have shape {tuple(tensor.shape)}; expected two dimensions, with columns")
    if tensor.device.type not in (kinds := served_devices(group)):
        raise UnsupportedError(f"{name} are on {tensor.device}; expected them on {' or '.join(sorted(kinds))}")


def _array(values: Any, name: str) -> Any:
    """Return a tensor as an array, and anything else as it is."""
    torch, _ = import_torch()
    if not isinstance(values, torch.Tensor):
        return np.arange(0) if values is None else values
    if values.is_floating_point() or values.is_complex() or values.dtype == torch.bool:
        raise UnsupportedError(f"{name} have type {values.dtype}; expected whole numbers")
    return values.detach().cpu().numpy()


def agree_on_dispatch(
    terms: Terms | UnsupportedError, relay_rounds: int | None, group: Any, timeout: float | None
) -> Agreed:
    """Compare the arguments of all ranks, and exchange counts; raises on all ranks if any refuses, or they differ."""
    from ...solvers.steps.dispatch import destination_masks

    _, dist = import_torch()
    ranks, rank = dist.get_world_size(group), dist.get_rank(group)
    width = 2 + len(SAME + DIGESTED)
    if isinstance(terms, UnsupportedError):
        refuse(terms, width + 2 + ranks, group, timeout, DISPATCH)
    servers, gpus = terms.servers, terms.gpus
    masks = destination_masks(terms.indices, terms.homes, servers, gpus)
    elsewhere = masks > 0
    elsewhere[:, rank // gpus] = False
    sends, leaving = elsewhere.sum(axis=0), elsewhere.any(axis=1).sum()
    row = [0, *terms.numbers, terms.needs_gradient, len(masks), leaving, *sends.tolist(), *[0] * (ranks - servers)]
    table = gathered(row, group, timeout, DISPATCH)
    compare(table, DISPATCH, SAME, DIGESTED, {"stages": {code: name for name, code in STAGES.items()}})
    before = np.cumsum(table[:, width]) - table[:, width]
    if (total := int(table[:, width].sum())) > MAX_TOKENS:
        raise UnsupportedError(f"the ranks have {total} tokens; expected at most {MAX_TOKENS} in a dispatch")
    counts = DispatchCounts(table[:, width + 2 : width + 2 + servers], table[:, width + 1], gpus)
    if servers <= MAX_RELAY_SERVERS and (pays_to_relay(counts) if relay_rounds is None else relay_rounds):
        classes = gathered(class_counts(elsewhere).tolist(), group, timeout, DISPATCH)
        counts = replace(counts, classes=classes)
    return Agreed(counts, masks, before, bool(table[:, width - 1].any()))


def agree_on_combine(
    outputs: torch.Tensor, needs_gradient: bool, error: UnsupportedError | None, group: Any, timeout: float | None
) -> bool:
    """Compare the arguments of all ranks of a combine; return whether any needs gradients."""
    if error is not None:
        refuse(error, 4, group, timeout, COMBINE)
    row = [0, outputs.shape[1], digest(str(outputs.dtype).encode()), needs_gradient]
    table = gathered(row, group, timeout, COMBINE)
    compare(table, COMBINE, ("the columns of expert_outputs",), ("the type of expert_outputs",))
    return bool(table[:, -1].any())


def swapped(rows: IntArray, group: Any, timeout: float | None) -> IntArray:
    """Send row r to rank r, and return the rows for this rank."""
    torch, dist = import_torch()
    try:
        mine = torch.from_numpy(rows).to(agreement_device(group))
        theirs = torch.empty_like(mine)
        wait(dist.all_to_all_single(theirs, mine, group=group, async_op=True), timeout)
        columns: IntArray = theirs.cpu().numpy()
    except RuntimeError as error:
        raise ProgramError(f"the ranks could not exchange the counts of a dispatch: {first_line(error)}") from error
    return columns
