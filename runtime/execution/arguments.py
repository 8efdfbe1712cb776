"""Arguments of one rank's call of a collective, and the reduction operations on torch tensors.

Sums are in the tensors' own type, in the order of the program: integers wrap around, and floating-point results depend
on that order, though all runs and ranks get the same bits.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from ...errors import MissingDependencyError, UnsupportedError
from ...support.validation import shown
from ..programs.layout import Layout
from ..programs.program import Program, check_choice, check_counts, check_seconds
from .rank_rounds import checked_rounds, shard_elements, works_in_place

if TYPE_CHECKING:
    import torch

_processes: WeakKeyDictionary[Any, int] = WeakKeyDictionary()  # In which process a group was first used
OPERATIONS = ("sum", "prod", "min", "max", "avg")
INTEGERS = ("uint8", "int8", "int16", "int32", "int64")
FLOATS = ("float16", "bfloat16", "float32", "float64")
COMPLEX = ("complex64", "complex128")
FUNCTIONS = {"sum": "add", "prod": "mul", "min": "minimum", "max": "maximum", "avg": "add"}
"""Functions of torch; an average is a sum that is divided at the end."""
TYPES = {
    "sum": (*INTEGERS, *FLOATS, *COMPLEX),
    "prod": (*INTEGERS, *FLOATS, *COMPLEX),
    "min": (*INTEGERS, *FLOATS),
    "max": (*INTEGERS, *FLOATS),
    "avg": (*FLOATS, *COMPLEX),
}


@dataclass(frozen=True)
class Call:
    """Arguments of one rank's call; `group` is never None, tensors that this rank does not use are."""

    program: Program
    output: Any
    input: Any
    group: Any
    timeout: float | None = None
    slices: int = 1
    op: str = "sum"
    async_op: bool = False

    @property
    def full_name(self) -> str:
        """Name of the tensor that holds the data of all shards; neither does in an all-to-all(v)."""
        return "input" if self.program.collective.direction == "reduce" else "output"

    @property
    def full_tensor(self) -> Any:
        """The tensor with the data of all shards."""
        return self.input if self.full_name == "input" else self.output

    @property
    def elements(self) -> int | None:
        """Elements of all shards, or of all ranks in an all-to-all(v); None if this rank has none and cannot tell."""
        layout = self.program.layout
        if not layout.in_pairs:
            return int(self.full_tensor.numel())
        _, dist = import_torch()
        unit = _elements_per_unit(self, dist.get_rank(self.group))
        return None if unit is None else unit * sum(inputs for inputs, _ in layout.pair_parts)

    @property
    def is_size_known(self) -> bool:
        """Whether every rank can tell the size of the collective."""
        return not self.program.layout.in_pairs or (0, 0) not in self.program.layout.pair_parts

    @property
    def shard_tensor(self) -> Any:
        """The tensor with this rank's shard."""
        return self.output if self.full_name == "input" else self.input


def import_torch() -> tuple[Any, Any]:
    """Import torch and torch.distributed, or raise `MissingDependencyError`, which says how to install them."""
    try:
        import torch
        import torch.distributed as dist
    except ImportError as error:
        raise MissingDependencyError(
            f"running a plan needs torch ({error}); install it with: pip install 'collopt[torch]'"
        ) from error
    if not dist.is_available():
        raise MissingDependencyError("this build of torch has no torch.distributed; install an ordinary one")
    return torch, dist


def member_rank(group: Any) -> int:
    """Return the rank of this process in the group; `UnsupportedError` if it has none."""
    _, dist = import_torch()
    if not dist.is_initialized():
        raise UnsupportedError("torch.distributed is not initialised; call init_process_group, or start with torchrun")
    rank: int = dist.get_rank(group)
    if rank < 0:
        raise UnsupportedError("this process is not a member of the group; only members may call")
    return rank


def p2p_group(group: Any, *tensors: Any) -> Any:
    """Return the group for point-to-point messages: itself, or the plan group of one of the ``collopt`` backend."""
    torch, dist = import_torch()
    group = dist.group.WORLD if group is None else group
    check_process(group)
    plan_group = getattr(group, "plan_group", None)
    if plan_group is None:
        return group
    return plan_group(next((tensor.device.type for tensor in tensors if isinstance(tensor, torch.Tensor)), None))


def joined_group(group: Any, *tensors: Any) -> tuple[int, Any]:
    """Return the rank of this process in a group, and the group for its messages, after refusing other objects."""
    _, dist = import_torch()
    if group not in (None, dist.GroupMember.NON_GROUP_MEMBER) and not isinstance(group, dist.ProcessGroup):
        raise UnsupportedError(f"group is a {type(group).__name__}; expected a ProcessGroup, or None")
    return member_rank(group), p2p_group(group, *tensors)


def agreement_device(group: Any) -> Any:
    """Return the device on which ranks of a group compare arguments: the CPU where possible."""
    torch, _ = import_torch()
    if served_devices(group) == {"cuda"}:
        return torch.device("cuda", torch.cuda.current_device())
    return torch.device("cpu")


def served_devices(group: Any) -> set[str]:
    """Return the device types that a group has backends for."""
    return {device.type for device in group._device_types}


def check_call(call: Call) -> None:
    """Refuse wrong arguments of this rank's run of a plan."""
    _check_options(call)
    _check_tensors(call)
    check_async(call.async_op, call.full_tensor, call.timeout)
    checked_rounds(call.program, call.slices)


def check_async(async_op: object, tensor: Any, timeout: float | None) -> None:
    """Refuse calls that cannot run asynchronously."""
    if not isinstance(async_op, bool):
        raise UnsupportedError(f"async_op is {shown(async_op)}; expected True or False")
    if not async_op:
        return
    _, dist = import_torch()
    device = tensor.device.type
    if device not in ("cpu", "cuda"):
        problem = f"the tensors are on {device}; expected them on cpu or cuda"
    elif device == "cpu" and dist.get_debug_level() is dist.DebugLevel.DETAIL:
        # Torch takes messages of another thread for a mismatch of collectives then.
        problem = "TORCH_DISTRIBUTED_DEBUG is DETAIL; expected another level"
    elif device == "cuda" and timeout is not None:
        problem = f"timeout is {timeout}, which CUDA work needs the call to wait for; expected none"
    else:
        return
    raise UnsupportedError(f"async_op is True and {problem}, or async_op=False")


def _check_options(call: Call) -> None:
    _, dist = import_torch()
    if (size := dist.get_world_size(call.group)) != call.program.num_ranks:
        raise UnsupportedError(f"the group has {size} ranks, the program is for {call.program.num_ranks}")
    check_counts({"slices": call.slices})
    if call.timeout is not None:
        check_seconds("timeout", call.timeout)


def _check_tensors(call: Call) -> None:
    _, dist = import_torch()
    layout, rank = call.program.layout, dist.get_rank(call.group)
    for name, tensor in (("output", call.output), ("input", call.input)):
        if tensor is not None:
            check_tensor(name, tensor)
        elif name == call.full_name or layout.in_pairs:
            raise UnsupportedError(f"{name} is None; {call.program.collective} needs one on every rank")
    if call.shard_tensor is not None:
        check_same_kind(call.output, call.input)
        _check_overlap(call, rank)
    _check_numbers(call, rank)
    check_operation(call.op, call.full_tensor.dtype, layout)
    kinds = served_devices(call.group)
    if call.full_tensor.device.type not in kinds:
        raise UnsupportedError(
            f"the tensors are on {call.full_tensor.device} but the group's backend is {dist.get_backend(call.group)}; "
            f"move them to {' or '.join(sorted(kinds))}"
        )


def overlap(one: torch.Tensor, other: torch.Tensor) -> int | None:
    """Return by how many bytes the second tensor begins after the first; None if they are apart."""
    distance = other.data_ptr() - one.data_ptr()
    is_apart = distance >= one.numel() * one.element_size() or -distance >= other.numel() * other.element_size()
    return None if is_apart or not one.numel() or not other.numel() else distance


def _check_overlap(call: Call, rank: int) -> None:
    """Refuse tensors that overlap other than as a rank's shard in the larger."""
    layout, full = call.program.layout, call.full_tensor
    if (distance := overlap(full, call.shard_tensor)) is None:
        return
    if layout.in_pairs:
        raise UnsupportedError("input and output overlap; give the output memory of its own")
    place = sum(shard_elements(layout, full.numel())[:rank]) if layout.collective.is_sharded else 0
    if distance != place * full.element_size():
        name = "output" if call.full_name == "input" else "input"
        raise UnsupportedError(
            f"input and output overlap; give the {name} memory of its own, or its own place in the {call.full_name}"
        )
    if not works_in_place(call.program):
        raise UnsupportedError("input and output are the same memory, which this program is not made for; give it two")


def _check_numbers(call: Call, rank: int) -> None:
    """Refuse numbers of elements that do not match."""
    layout, elements = call.program.layout, call.full_tensor.numel()
    outputs, inputs = (0 if tensor is None else tensor.numel() for tensor in (call.output, call.input))
    if layout.in_pairs:
        sends, takes = layout.pair_parts[rank]
        unit = _elements_per_unit(call, rank) or 0
        fits = (inputs, outputs) == (unit * sends, unit * takes)
        expected = f"{takes} and {sends} times the same number: column and row {rank} of the traffic, in lowest terms"
    else:
        if layout.collective.has_one_root and rank != layout.root:
            return
        name = "output" if call.full_name == "input" else "input"
        share, expected = elements, "the same number in both"
        if layout.collective.is_sharded:
            share = shard_elements(layout, elements)[rank]
            expected = f"{share} in the {name}, rank {rank}'s share of the {call.full_name}"
            if len(set(layout.shards)) == 1:
                ranks = call.program.num_ranks
                share = elements // ranks if elements % ranks == 0 else -1
                expected = f"{ranks} times as many in the {call.full_name}, one {name} per rank"
        fits = share == (outputs if name == "output" else inputs)
    if not fits:
        raise UnsupportedError(f"output has {outputs} elements and input has {inputs}; expected {expected}")


def _elements_per_unit(call: Call, rank: int) -> int | None:
    """Elements per unit of traffic in lowest terms, rounded down; None without traffic."""
    inputs, outputs = call.program.layout.pair_parts[rank]
    if inputs:
        return int(call.input.numel()) // inputs
    return int(call.output.numel()) // outputs if outputs else None


def check_process(group: Any) -> None:
    """Refuse a group of a parent process, after a fork."""
    if (process := _processes.setdefault(group, os.getpid())) != os.getpid():
        raise UnsupportedError(
            f"the group is that of process {process}, of which this one is a fork; expected one made here, by new_group"
        )


def check_tensor(name: str, tensor: object) -> None:
    """Refuse anything but a contiguous tensor."""
    import torch

    if not isinstance(tensor, torch.Tensor):
        raise UnsupportedError(f"{name} is a {type(tensor).__name__}; expected a torch.Tensor")
    if tensor.layout is not torch.strided or not tensor.is_contiguous():
        raise UnsupportedError(f"{name} has shape {tuple(tensor.shape)} and is not contiguous; call .contiguous()")
    if tensor.is_conj() or tensor.is_neg():
        raise UnsupportedError(f"{name} is a lazy conjugate or negative; call .resolve_conj().resolve_neg()")


def check_same_kind(output: torch.Tensor, source: torch.Tensor) -> None:
    """Refuse an output whose type or device is not the input's."""
    if output.dtype != source.dtype:
        raise UnsupportedError(f"output is {output.dtype} and input is {source.dtype}; expected the same type")
    if output.device != source.device:
        raise UnsupportedError(f"output is on {output.device} and input is on {source.device}; expected one device")


def check_operation(op: str, dtype: Any, layout: Layout) -> None:
    """Refuse an unknown reduction operation, or one without support for the type."""
    check_choice("op", op, OPERATIONS)
    if layout.reduces and str(dtype).removeprefix("torch.") not in TYPES[op]:
        raise UnsupportedError(f"{op} is not supported on {dtype}; expected one of {', '.join(TYPES[op])}")


def combine(op: str, one: Any, other: Any, target: Any) -> None:
    """Reduce two tensors into `target`, which may be either of them."""
    import torch

    getattr(torch, FUNCTIONS[op])(other, one, out=target)


def divide_average(op: str, output: Any, num_ranks: int) -> None:
    """Divide a sum into an average."""
    if op == "avg":
        output.div_(num_ranks)
