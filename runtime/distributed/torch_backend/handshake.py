"""Lets the ranks of a new group compare what they are going to do, before any of them does it."""

from __future__ import annotations

from typing import Any

from ....errors import ColloptError, ProgramError
from ..calls.agreement import first_line

FINE = "fine"
REFUSED = "refused: "


def compare(store: Any, rank: int, size: int, mine: str | ColloptError) -> None:
    """Raise on every rank unless all ranks tell the same."""
    own = f"{REFUSED}{mine}" if isinstance(mine, ColloptError) else mine
    try:
        # A store may have seen a group of the same name, which was destroyed.
        name = f"collopt-{store.add(f'collopt-turn-{rank}', 1)}"
        store.set(f"{name}-{rank}", own)
        if rank == 0:
            told = [store.get(f"{name}-{each}").decode() for each in range(size)]
            store.set(f"{name}-verdict", _verdict(told))
        verdict = store.get(f"{name}-verdict").decode()
    except RuntimeError as error:
        if isinstance(mine, ColloptError):
            raise mine from None
        raise ProgramError(f"the ranks could not compare their plans: {first_line(error)}") from error
    if isinstance(mine, ColloptError):
        raise mine
    if verdict != FINE:
        raise ProgramError(verdict)


def _verdict(told: list[str]) -> str:
    for rank, each in enumerate(told):
        if each.startswith(REFUSED):
            return f"rank {rank} has {each}"
    for rank, each in enumerate(told):
        if each != told[0]:
            return (
                f"ranks 0 and {rank} have different plans or settings for the collopt backend; give all ranks the same "
                "files and the same arguments of configure"
            )
    return FINE
