"""Runs programs through torch.distributed: Gloo, NCCL and RCCL by one path.

Facts about torch.distributed that the code below rests on (seen with torch 2.13 and Gloo, or read in its source):

- Gloo cannot send to its own rank, so data that stays is copied.
- A batch must not be empty, all its tensors must be contiguous and must live until the work is done.
- Peers are global ranks even in a subgroup.  Tags are ignored by NCCL; messages between two ranks match in order.
- The first batch on a group has to involve every rank; an all-reduce before it sees to that.
- Waiting for NCCL work blocks the current stream, not the process.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol
from weakref import WeakKeyDictionary

from ..errors import ProgramError, UnsupportedError
from ..schedules import Forest
from .agreement import Call, agree, first_line, import_torch, wait
from .batches import Copy, Operation, OwnRound, own_rounds
from .lowering import lower_allgather
from .program import Program

if TYPE_CHECKING:
    import torch
    import torch.distributed as dist

__all__ = ["PlanLike", "execute", "execute_allgather"]

NO_LIMIT = 2**31 - 1

_lowered: WeakKeyDictionary[Forest, Program] = WeakKeyDictionary()


class PlanLike(Protocol):
    """What `execute` needs of a plan."""

    @property
    def collective(self) -> str:
        """Such as ``"allgather"``."""

    @property
    def schedule(self) -> object:
        """A `Forest` for allgather."""


def execute(
    plan: PlanLike,
    output: torch.Tensor,
    input: torch.Tensor,  # noqa: A002 - torch.distributed's own name for it.
    *,
    group: dist.ProcessGroup | None = None,
    timeout: float | None = None,
    slices: int = 1,
) -> None:
    """Run a plan; every rank of the group calls this with its own tensors.

    Parameters
    ----------
    plan : Plan
        An allgather plan; rank r of the group is compute node r of its topology.
    output, input : torch.Tensor
        As for `execute_allgather`.
    group : torch.distributed.ProcessGroup or None
        None is the default group.
    timeout : float or None
        Seconds, as for `execute_allgather`.
    slices : int
        As for `execute_allgather`.

    Raises
    ------
    UnsupportedError
        If the plan is not an allgather made of trees, or the tensors or the group do not fit it.
    ProgramError
        If the ranks disagree, or the exchange fails.
    MissingDependencyError
        If torch is not installed.
    """
    if plan.collective != "allgather" or not isinstance(plan.schedule, Forest):
        raise UnsupportedError(
            f"the plan is for {plan.collective} and holds a {type(plan.schedule).__name__}; only allgather plans made "
            "of trees can be executed"
        )
    program = _lowered.get(plan.schedule)
    if program is None:
        # Without thread blocks there is nothing that limits steps or counts.
        program = lower_allgather(plan.schedule, max_steps=NO_LIMIT, max_count=NO_LIMIT)
        _lowered[plan.schedule] = program
    execute_allgather(program, output, input, group=group, timeout=timeout, slices=slices)


def execute_allgather(
    program: Program,
    output: torch.Tensor,
    input: torch.Tensor,  # noqa: A002 - torch.distributed's own name for it.
    *,
    group: dist.ProcessGroup | None = None,
    timeout: float | None = None,
    slices: int = 1,
) -> None:
    """Gather every rank's `input` into `output` along the transfers of a program.

    The first call on a group with some program and size checks the program and agrees with the other ranks; like any
    collective it has to be made by all ranks of the group with the same arguments.

    Parameters
    ----------
    program : Program
        An out-of-place allgather for as many ranks as the group has.
    output : torch.Tensor
        Contiguous, ``num_ranks`` times the elements of `input`: rank r's input comes to stand at position r.
    input : torch.Tensor
        Contiguous.  Any number of elements; it need not divide by the number of chunks.
    group : torch.distributed.ProcessGroup or None
        None is the default group.
    timeout : float or None
        Seconds that one round may take; None leaves it to the process group.
    slices : int
        Pieces of the input that follow each other through the network.  More pieces keep more links busy at once and
        cost more batches.

    Raises
    ------
    UnsupportedError
        If the tensors, the group and the program do not fit together.
    ProgramError
        If the program is wrong, the ranks disagree, or the exchange fails.
    MissingDependencyError
        If torch is not installed.
    """
    torch, dist = import_torch()
    if not dist.is_initialized():
        raise UnsupportedError("torch.distributed is not initialised; call init_process_group, or start with torchrun")
    rank: int = dist.get_rank(group)
    if rank < 0:
        raise UnsupportedError("this process is not a member of the group; only members may call")
    call = Call(program, output, input, dist.group.WORLD if group is None else group, timeout, slices)
    agree(call)
    rounds = own_rounds(program, slices, rank, input.numel())
    with torch.no_grad():
        for number, part in enumerate(rounds):
            try:
                _run_round(call, part)
            except RuntimeError as error:
                peers = sorted({operation.peer for operation in part.operations})
                raise ProgramError(
                    f"rank {rank} could not finish round {number + 1} of {len(rounds)}, in which it exchanges data "
                    f"with ranks {peers}: {first_line(error)}"
                ) from error


def _run_round(call: Call, part: OwnRound) -> None:
    """Post one batch and wait for it; local copies go on meanwhile."""
    torch, dist = import_torch()
    # As bytes, because no backend carries all element types (Gloo and NCCL have no int16).
    output, own = (tensor.view(-1).view(torch.uint8) for tensor in (call.output, call.input))
    size = call.input.element_size()

    def piece(of: Operation | Copy) -> Any:
        return (own if of.from_input else output)[of.begin * size : of.end * size]

    views = [piece(each) for each in part.operations]
    batch = [
        dist.P2POp(
            dist.isend if each.is_send else dist.irecv, view, dist.get_global_rank(call.group, each.peer), call.group
        )
        for each, view in zip(part.operations, views, strict=True)
    ]
    works = dist.batch_isend_irecv(batch) if batch else []
    for copy in part.copies:
        source = piece(copy)
        output[copy.target * size :][: len(source)].copy_(source)
    for work in works:
        wait(work, call.timeout)
