"""Looks at one rank's call of a collective and makes sure that all ranks make the same one.

A rank that raised alone would leave the others waiting until the process group gives up.  So on the first call of its
kind every rank tells the others what it is about to do, and all stop together if that does not fit.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from weakref import WeakKeyDictionary

from ..errors import ColloptError, MissingDependencyError, ProgramError, UnsupportedError
from .batches import checked_rounds
from .program import Program

__all__ = ["Call", "agree", "first_line", "import_torch", "wait"]

DIGEST_DIGITS = 15
"""Hexadecimal digits of a program's digest that fit an int64 with its sign."""

_agreed: WeakKeyDictionary[Any, set[tuple[object, ...]]] = WeakKeyDictionary()


@dataclass(frozen=True)
class Call:
    """The arguments of one rank's call; `group` is never None."""

    program: Program
    output: Any
    input: Any
    group: Any
    timeout: float | None
    slices: int


def import_torch() -> tuple[Any, Any]:
    """Import torch and torch.distributed, or raise `MissingDependencyError` with the way to install them."""
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


def wait(work: Any, timeout: float | None) -> None:
    """Wait for one piece of work; NCCL's makes the current stream wait instead of the process."""
    if timeout is None:
        work.wait()
    else:
        work.wait(timedelta(seconds=timeout))


def first_line(error: Exception) -> str:
    """Return the first line of torch's often many."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def agree(call: Call) -> None:
    """Check this rank's arguments, and on the first call of its kind compare them with the other ranks'.

    The comparison is a small all-reduce, which also is the collective that NCCL wants before a group's first batch.

    Raises
    ------
    UnsupportedError
        If this rank's arguments do not fit together.
    ProgramError
        If another rank's do not, or the ranks' calls differ.
    """
    problem = _problem(call)
    known = _agreed.setdefault(call.group, set())
    if problem is not None and (call.program.digest,) in known:
        # The others are past the point where they could be told.
        raise problem
    key = () if problem else (call.program.digest, str(call.input.dtype), call.input.numel(), call.slices)
    if key in known:
        return
    _compare(call, problem)
    known.update({key, (call.program.digest,)})


def _problem(call: Call) -> ColloptError | None:
    """Return what is wrong with this rank's arguments, if anything is."""
    try:
        _check_options(call)
        _check_tensors(call)
        checked_rounds(call.program, call.slices)
    except ColloptError as error:
        return error
    return None


def _check_options(call: Call) -> None:
    _, dist = import_torch()
    if (size := dist.get_world_size(call.group)) != call.program.num_ranks:
        raise UnsupportedError(f"the group has {size} ranks, the program is for {call.program.num_ranks}")
    if isinstance(call.slices, bool) or not isinstance(call.slices, int) or call.slices < 1:
        raise UnsupportedError(f"slices is {call.slices!r}; expected a whole number of at least 1")
    if call.timeout is not None and not call.timeout > 0:
        raise UnsupportedError(f"timeout is {call.timeout!r}; expected a positive number of seconds, or None")


def _check_tensors(call: Call) -> None:
    torch, dist = import_torch()
    output, own = call.output, call.input
    for name, tensor in (("output", output), ("input", own)):
        if not isinstance(tensor, torch.Tensor):
            raise UnsupportedError(f"{name} is a {type(tensor).__name__}; expected a torch.Tensor")
        if not tensor.is_contiguous():
            raise UnsupportedError(f"{name} has shape {tuple(tensor.shape)} and is not contiguous; call .contiguous()")
        if tensor.is_conj() or tensor.is_neg():
            raise UnsupportedError(f"{name} is a lazy conjugate or negative; call .resolve_conj().resolve_neg()")
    if output.dtype != own.dtype:
        raise UnsupportedError(f"output is {output.dtype} and input is {own.dtype}; expected the same type")
    if output.device != own.device:
        raise UnsupportedError(f"output is on {output.device} and input is on {own.device}; expected one device")
    if output.numel() != call.program.num_ranks * own.numel():
        raise UnsupportedError(
            f"output has {output.numel()} elements and input has {own.numel()}; expected {call.program.num_ranks} "
            "times as many in the output, one input per rank"
        )
    if dist.get_backend(call.group) == "nccl" and own.device.type != "cuda":
        raise UnsupportedError(f"the tensors are on {own.device} but the group's backend is nccl; move them to cuda")
    _check_overlap(output, own, dist.get_rank(call.group) * own.numel())


def _check_overlap(output: Any, own: Any, place: int) -> None:
    """Refuse an input inside the output, unless it already lies where it has to go."""
    distance = own.data_ptr() - output.data_ptr()
    size = output.element_size()
    if -own.numel() * size < distance < output.numel() * size and own.numel() and distance != place * size:
        raise UnsupportedError(
            "input and output overlap; give the input memory of its own, or its own place in the output"
        )


def _compare(call: Call, problem: ColloptError | None) -> None:
    """Tell the other ranks what this one is about to do; raise on all ranks unless all are about to do the same."""
    torch, dist = import_torch()
    names = ("a rank whose arguments are wrong", "the program", "the element type", "the input's size", "slices")
    mine = [1, 0, 0, 0, 0]
    if problem is None:
        program = int(call.program.digest[:DIGEST_DIGITS], 16)
        mine = [0, program, zlib.crc32(str(call.input.dtype).encode()), call.input.numel(), call.slices]
    on_gpu = dist.get_backend(call.group) == "nccl"
    device = torch.device("cuda", torch.cuda.current_device()) if on_gpu else torch.device("cpu")
    # The largest negative is the smallest negated: one all-reduce gives both extremes.
    extremes = torch.tensor([*mine, *(-value for value in mine)], dtype=torch.int64, device=device)
    try:
        wait(dist.all_reduce(extremes, op=dist.ReduceOp.MAX, group=call.group, async_op=True), call.timeout)
    except RuntimeError as error:
        raise problem or ProgramError(f"the ranks could not agree on the call: {first_line(error)}") from error
    if problem is not None:
        raise problem
    largest, smallest = extremes[: len(mine)].tolist(), (-extremes[len(mine) :]).tolist()
    if largest[0]:
        raise ProgramError("another rank refused its arguments, so this one stops too; that rank's message says why")
    for name, most, least in zip(names, largest, smallest, strict=True):
        if most != least:
            raise ProgramError(f"the ranks disagree about {name}; all have to make the same call")
