"""Runs one rank's steps of an all-to-all."""

from __future__ import annotations

from typing import Any

from ....errors import ProgramError
from ..calls.agreement import first_line, wait_for_all
from ..calls.arguments import import_torch
from ..calls.concurrency import TAG
from .arguments import AllToAllCall
from .steps import Copy, Message, OwnSteps

__all__ = ["run"]


def run(call: AllToAllCall, plan: OwnSteps) -> None:
    """Run all steps, one after the other.

    Raises
    ------
    ProgramError
        If the exchange failed or was late; the output then holds anything.
    """
    torch, _ = import_torch()
    number = 0
    try:
        # Unlike no_grad this also lets us write to tensors that were made so.
        with torch.inference_mode():
            memories = (
                call.input.detach().view(-1).view(torch.uint8),
                call.output.detach().view(-1).view(torch.uint8),
                torch.empty(plan.scratch, dtype=torch.uint8, device=call.input.device),
            )
            for number, step in enumerate(plan.in_order(), start=1):  # noqa: B007 - told below.
                _copy(step.before, memories)
                for batch in step.batches:
                    _exchange(call, batch, memories)
                _copy(step.after, memories)
    except (RuntimeError, ValueError) as error:  # The latter if the group has been destroyed meanwhile.
        raise ProgramError(
            f"rank {call.group.rank()} could not finish step {number} of {plan.num_steps} of an all-to-all: "
            f"{first_line(error)}"
        ) from error


def _copy(copies: list[Copy], memories: tuple[Any, Any, Any]) -> None:
    for source, begin, target, place, length in copies:
        memories[target][place : place + length].copy_(memories[source][begin : begin + length])


def _exchange(call: AllToAllCall, batch: list[Message], memories: tuple[Any, Any, Any]) -> None:
    """Post one batch and wait; the pieces of memory live until then."""
    _, dist = import_torch()
    operations = [
        dist.P2POp(
            dist.isend if is_send else dist.irecv,
            memories[memory][place : place + length],
            group=call.group,
            tag=TAG,
            group_peer=peer,
        )
        for peer, is_send, memory, place, length in batch
    ]
    wait_for_all(dist.batch_isend_irecv(operations), call.timeout)
