"""Ranks started by a launcher such as torchrun: their processes, and the check of the operation they run."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ...schedules import Collective
from ..arguments.parameters import UsageError
from ..terminal.exit_status import CHECK_FAILED
from ..terminal.output import note

if TYPE_CHECKING:
    from ...planners import Plan

GRACE_S = 5.0  # Torch's own errors, which say more, get this long after the deadline


def note_copies(plans: Mapping[str, Plan]) -> None:
    """Say that ranks do what switches do in these plans, so that their rates are not those of the plans."""
    from ...runtime.lowering.tree_transfers import branches_at_switches

    if names := [name for name, plan in plans.items() if branches_at_switches(plan.schedule)]:
        note(
            f"collopt: note: ranks copy and add up what switches do in the trees of {', '.join(names)}, as "
            "torch.distributed sends from rank to rank"
        )


@contextmanager
def as_one_of_the_ranks(what: str, timeout: float) -> Iterator[None]:
    """Under torchrun, silence torch's libraries and end the process after `timeout` seconds; elsewhere do nothing.

    Torch can wait for ever if something else than a rank answers at the master's address.
    """
    from ...runtime.distributed.processes.rendezvous import launch_of_environment

    launch = launch_of_environment()
    if launch is None:
        yield
        return
    # Their errors come as exceptions too, without stack traces; the libraries look at this when torch is imported.
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "FATAL")
    message = (
        f"rank {launch.rank} of {launch.size} did not finish {what} within {timeout:g} s; check that all ranks "
        f"are started and can reach {launch.master}, or give a longer --timeout"
    )
    late = threading.Timer(timeout + GRACE_S, _give_up, (message,))
    late.daemon = True
    late.start()
    try:
        yield
    finally:
        late.cancel()


def check_op(op: str | None, collective: Collective, name: object) -> None:
    """Refuse a reduction operation for a collective that does not reduce."""
    if op is not None and not collective.reduces:
        raise UsageError(f"--op {op} reduces, but the {collective} of {name} does not reduce; leave it out")


def _give_up(message: str) -> None:
    note(f"collopt: error: {message}")
    os._exit(CHECK_FAILED)
