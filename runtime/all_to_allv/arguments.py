"""Argument checks of one rank's all-to-all, dispatch or combine, and agreement of all ranks on the call."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ...errors import ColloptError, ProgramError, UnsupportedError
from ...planners.all_to_all.dispatch import (
    MAX_GPUS,
    MAX_ROUNDS,
    DispatchCounts,
    as_indices,
    as_placement,
    class_counts,
    pays_to_relay,
)
from ...schedules.stages.segments import lane_counts
from ...schedules.stages.two_tier_cost import H200, TwoTierModel, check_model
from ...support.arrays import IntArray
from ...support.validation import shown
from ..execution.agreement import (
    ALL_TO_ALL,
    COMBINE,
    DISPATCH,
    UNKNOWN,
    agree_on,
    agreed_size,
    first_line,
    gathered,
    refuse,
    stop,
    wait,
)
from ..execution.arguments import (
    agreement_device,
    check_async,
    check_same_kind,
    check_tensor,
    import_torch,
    overlap,
    served_devices,
)
from ..programs.program import check_choice, check_counts, check_seconds
from .dispatch_rounds import MAX_RELAY_SERVERS, MAX_TOKENS
from .steps import Exchange

if TYPE_CHECKING:
    import torch

    from ...solvers.steps.dispatch import MaskArray

BACKEND_DEVICES = {"nccl": "cuda", "gloo": "cpu"}
"""Device type that a backend requires; other backends serve several."""
MAX_LANES = 32  # of a NIC: each may have messages of its own in a batch
MAX_ROW_SERVERS = 16  # Whose counts fit into the row of a call; of more servers they are gathered apart


class AllToAllCall(NamedTuple):
    """The arguments of one rank's all-to-all."""

    output: Any
    input: Any
    output_splits: Any
    input_splits: Any
    group: Any
    async_op: Any = False
    servers: int | None = None
    gpus_per_server: int | Sequence[int] | None = None
    traffic: Any = None
    stages: str | None = None
    max_stage_bytes: int | None = None
    max_scratch_bytes: int | None = None
    nics: Any = None
    model: TwoTierModel | None = None
    timeout: float | None = None


class ExchangeTerms(NamedTuple):
    """Checked arguments of one rank's all-to-all: rows to and from each rank, and what all ranks compare."""

    sends: list[int]
    receives: list[int]
    row_bytes: int  # Or `UNKNOWN` without rows
    kinds: Mapping[str, object]
    exchange: Exchange  # With the traffic if it is given, but without the bytes of a row, which another rank may tell


def check_all_to_all(call: AllToAllCall) -> ExchangeTerms:
    """Check the arguments of a call, and fill in defaults."""
    from ...planners.all_to_all.fast import as_rates, as_traffic

    _, dist = import_torch()
    ranks, rank = dist.get_world_size(call.group), dist.get_rank(call.group)
    check_limits(call.timeout, call.stages, {"max_stage_bytes": call.max_stage_bytes})
    check_limits(None, None, {"max_scratch_bytes": call.max_scratch_bytes}, minimum=0)
    sizes = _sizes(call, ranks)
    nics = () if call.nics is None else as_rates(call.nics, sizes)
    if (lanes := lane_counts(nics).max(initial=1)) > MAX_LANES:
        raise UnsupportedError(
            f"the largest rate of nics is {lanes} times the one that divides all; expected {MAX_LANES} times at most"
        )
    _check_tensors(call)
    check_async(call.async_op, call.input, call.timeout)
    # Splits, and the row and column of this rank in the traffic.
    sends = _splits("input", call.input, call.input_splits, ranks)
    receives = _splits("output", call.output, call.output_splits, ranks)
    traffic = b""
    if call.traffic is not None:
        rows, _, _ = as_traffic(call.traffic, ranks, 1)
        traffic = rows.tobytes()
        for name, own, stated in (("input", sends, rows[rank]), ("output", receives, rows[:, rank])):
            if own != stated.tolist():
                raise UnsupportedError(
                    f"traffic has {stated.tolist()} in {'row' if name == 'input' else 'column'} {rank}; expected "
                    f"{own}, rank {rank}'s {name} split sizes"
                )
    model = H200 if call.model is None else call.model
    check_model(model)
    gpus = sizes[0] if min(sizes) == max(sizes) else sizes
    limits = call.stages, call.max_stage_bytes, call.max_scratch_bytes
    kinds = {"the element type": call.input.dtype, "the kind of device": call.input.device.type}
    exchange = Exchange(traffic, len(sizes), gpus, 0, *limits, model, nics)
    return ExchangeTerms(sends, receives, _row_bytes(call), kinds, exchange)


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
    shape = {name: count for name, count in (("servers", servers), ("gpus_per_server", gpus)) if count is not None}
    check_counts(shape)
    if servers is None and gpus is None:
        text = os.environ.get("LOCAL_WORLD_SIZE", "")
        local = int(text) if text.isascii() and text.isdigit() and len(text) < 19 else 0
        gpus = local if local and ranks % local == 0 else 1
    servers = ranks // (gpus or 1) if servers is None else servers
    gpus = ranks // servers if gpus is None else gpus
    if servers * gpus != ranks:
        given_text = " and ".join(f"{name} is {count}" for name, count in shape.items())
        raise UnsupportedError(
            f"{given_text}, but the group has {ranks} ranks; expected servers x gpus_per_server = {ranks}"
        )
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
        if tensor.device.type == "cuda" and tensor.device.index != (current := torch.cuda.current_device()):
            raise UnsupportedError(
                f"{name} is on {tensor.device} but the current device is cuda:{current}; call torch.cuda.set_device"
            )
    check_same_kind(call.output, call.input)
    if overlap(call.output, call.input) is not None:
        raise UnsupportedError("input and output overlap; give the output memory of its own")


def _row_bytes(call: AllToAllCall) -> int:
    """Bytes of a row; `UNKNOWN` if this rank has no rows."""
    tensors = {name: tensor for name, tensor in (("output", call.output), ("input", call.input)) if len(tensor)}
    sizes = {name: tensor.numel() // len(tensor) * tensor.element_size() for name, tensor in tensors.items()}
    if len(set(sizes.values())) > 1:
        raise UnsupportedError(
            f"output has rows of {sizes['output']} bytes and input has rows of {sizes['input']}; expected the same"
        )
    return next(iter(sizes.values()), UNKNOWN)


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
    if sizes.dtype.kind not in "iu" or sizes.shape != (ranks,) or min(splits := sizes.tolist()) < 0:
        raise UnsupportedError(
            f"{name}_split_sizes is {shown(split_sizes)}; expected {ranks} whole numbers of at least 0, one per rank"
        )
    if sum(splits) != rows:
        raise UnsupportedError(f"{name}_split_sizes add up to {sum(splits)}; expected {rows}, the rows of {name}")
    return list(splits)


def agreed_exchange(terms: ExchangeTerms | ColloptError, group: Any, timeout: float | None) -> Exchange:
    """Exchange the arguments, or errors, of all ranks, and return the agreed exchange; split sizes must match."""
    if isinstance(terms, ColloptError):
        refuse(ALL_TO_ALL, terms, group, timeout)
    equal = {**terms.exchange._asdict(), **terms.kinds}
    size = "the bytes of a row"
    sizes = agree_on(ALL_TO_ALL, equal, [terms.row_bytes], group, timeout, size)[:, 0]
    exchange = terms.exchange._replace(row_bytes=agreed_size(size, sizes))
    if exchange.traffic:
        return exchange
    sends, receives = np.hsplit(gathered([*terms.sends, *terms.receives], group, timeout, ALL_TO_ALL), 2)
    if (sends != receives.T).any():
        source, target = np.argwhere(sends != receives.T)[0].tolist()
        text = f"rank {source} has {sends[source, target]} rows for rank {target}, which expects "
        text += f"{receives[target, source]}; expected input and output split sizes that match"
        stop(ProgramError(text), group)
    return exchange._replace(traffic=sends.tobytes())


class DispatchCall(NamedTuple):
    """The arguments of one rank's dispatch; `group` is never None."""

    tokens: Any
    indices: Any
    placement: Any
    weights: Any
    group: Any
    servers: int | None
    gpus_per_server: int | None
    stages: str | None
    max_stage_tokens: int | None
    relay_rounds: int | None
    timeout: float | None
    async_op: object

    @property
    def inputs(self) -> list[Any]:
        """Tokens, and weights if there are any."""
        return [self.tokens] if self.weights is None else [self.tokens, self.weights]


class DispatchTerms(NamedTuple):
    """Checked arguments of one rank's dispatch: experts of tokens, ranks of experts, and what all ranks compare."""

    indices: IntArray
    homes: IntArray
    servers: int
    gpus: int
    equal: Mapping[str, object]
    needs_gradient: bool


class Agreed(NamedTuple):
    """What all ranks agreed on, the GPUs that this rank's tokens go to, and the tokens of the ranks before each."""

    counts: DispatchCounts
    masks: MaskArray
    first_numbers: IntArray
    needs_gradient: bool


def check_dispatch(call: DispatchCall) -> DispatchTerms:
    """Check the arguments of a dispatch."""
    torch, dist = import_torch()
    ranks, tokens, weights = dist.get_world_size(call.group), call.tokens, call.weights
    check_limits(call.timeout, call.stages, {"max_stage_tokens": call.max_stage_tokens})
    # Shape of the network, and the options that depend on it.
    servers, gpus = servers_and_gpus(call.servers, call.gpus_per_server, ranks)
    if call.relay_rounds is not None:
        check_counts({"relay_rounds": call.relay_rounds}, minimum=0)
        if call.relay_rounds > (most_rounds := MAX_ROUNDS if servers <= MAX_RELAY_SERVERS else 0):
            raise UnsupportedError(
                f"relay_rounds is {call.relay_rounds}; expected at most {most_rounds} among {servers} servers"
            )
    if gpus > MAX_GPUS:
        raise UnsupportedError(f"gpus_per_server is {gpus}; expected at most {MAX_GPUS} in a dispatch")
    # Tensors, and the experts of tokens.
    check_rows("tokens", tokens, call.group)
    check_async(call.async_op, tokens, call.timeout)
    homes = as_placement(_array(call.placement, "placement"), ranks)
    experts = as_indices(_array(call.indices, "indices"), len(homes))
    if len(experts) != len(tokens):
        raise UnsupportedError(f"there are indices of {len(experts)} tokens; expected {len(tokens)}, as many as rows")
    if weights is not None:
        check_rows("weights", weights, call.group, 0)
        if weights.shape != experts.shape or not weights.is_floating_point() or weights.device != tokens.device:
            raise UnsupportedError(
                f"weights have shape {tuple(weights.shape)} and type {weights.dtype}; expected {experts.shape} as the "
                "indices, a floating-point type, and the device of the tokens"
            )
    options = ("max_stage_tokens", "relay_rounds", "stages")
    equal = {"servers": servers, "gpus_per_server": gpus, **{name: getattr(call, name) for name in options}}
    equal |= {"the columns of tokens": tokens.shape[1], "the columns of indices": experts.shape[1]}
    equal |= {"the type of tokens": tokens.dtype, "the kind of device": tokens.device.type}
    equal |= {"the placement of experts": homes.tobytes(), "the type of weights": getattr(weights, "dtype", None)}
    needs = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in call.inputs)
    return DispatchTerms(experts, homes, servers, gpus, equal, needs)


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
    if values.layout is not torch.strided or values.is_meta:
        raise UnsupportedError(f"{name} are {values.layout} on {values.device}; expected a dense tensor with values")
    if values.is_floating_point() or values.is_complex() or values.dtype == torch.bool:
        raise UnsupportedError(f"{name} have type {values.dtype}; expected whole numbers")
    return values.detach().cpu().numpy()


def agree_on_dispatch(
    terms: DispatchTerms | ColloptError, relay_rounds: int | None, group: Any, timeout: float | None
) -> Agreed:
    """Compare the arguments of all ranks, and exchange counts; raises on all ranks if any refuses, or they differ."""
    from ...solvers.steps.dispatch import destination_masks

    _, dist = import_torch()
    if isinstance(terms, ColloptError):
        refuse(DISPATCH, terms, group, timeout)
    servers, gpus = terms.servers, terms.gpus
    # Tokens that leave this rank's server, in all and for each other server.
    masks = destination_masks(terms.indices, terms.homes, servers, gpus)
    elsewhere = masks > 0
    elsewhere[:, dist.get_rank(group) // gpus] = False
    sends = elsewhere.sum(axis=0).tolist()
    numbers = [int(terms.needs_gradient), len(masks), int(elsewhere.any(axis=1).sum())]
    numbers += sends if servers <= MAX_ROW_SERVERS else []
    table = agree_on(DISPATCH, terms.equal, numbers, group, timeout)
    (needs, tokens, leaving), to_servers = table.T[:3], table[:, 3:]
    if (total := int(tokens.sum())) > MAX_TOKENS:
        raise UnsupportedError(f"the ranks have {total} tokens; expected at most {MAX_TOKENS} in a dispatch")
    if servers > MAX_ROW_SERVERS:
        to_servers = gathered(sends, group, timeout, DISPATCH)
    counts = DispatchCounts(to_servers, leaving, gpus)
    if servers <= MAX_RELAY_SERVERS and (pays_to_relay(counts) if relay_rounds is None else relay_rounds):
        counts = replace(counts, classes=gathered(class_counts(elsewhere).tolist(), group, timeout, DISPATCH))
    return Agreed(counts, masks, np.cumsum(tokens) - tokens, bool(needs.any()))


def agree_on_combine(
    outputs: torch.Tensor, needs_gradient: bool, error: ColloptError | None, group: Any, timeout: float | None
) -> bool:
    """Compare the arguments of all ranks of a combine; return whether any needs gradients."""
    if error is not None:
        refuse(COMBINE, error, group, timeout)
    equal = {"the columns of expert_outputs": outputs.shape[1], "the type of expert_outputs": outputs.dtype}
    return bool(agree_on(COMBINE, equal, [int(needs_gradient)], group, timeout).any())


def swapped(rows: IntArray, group: Any, timeout: float | None) -> IntArray:
    """Send row r to rank r, and return the rows for this rank."""
    torch, dist = import_torch()
    try:
        own = torch.from_numpy(rows).to(agreement_device(group))
        received = torch.empty_like(own)
        wait(dist.all_to_all_single(received, own, group=group, async_op=True), timeout)
        columns: IntArray = received.cpu().numpy()
    except RuntimeError as error:
        raise ProgramError(f"the ranks could not exchange the counts of a dispatch: {first_line(error)}") from error
    return columns
