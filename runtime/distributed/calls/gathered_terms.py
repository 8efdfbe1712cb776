"""Comparison of what all ranks gather about a call that is agreed upon every time, such as an all-to-all(v).

A row of numbers of each rank has whether it refused its arguments, what has to be the same, and what else is to be
known.  Rows are int64 of a fixed length, as Gloo aborts the process where sizes differ.
"""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import numpy as np

from ....errors import ProgramError, UnsupportedError
from ....support.arrays import IntArray
from .agreement import first_line, wait
from .arguments import agreement_device, import_torch
from .diagnosis import explained

UNKNOWN = -1
"""Stands for what is not given."""


def digest(data: bytes) -> int:
    """Return a hash that fits a signed int64, less than its maximum."""
    return int.from_bytes(hashlib.blake2b(data, digest_size=7).digest())


def gathered(numbers: Sequence[int], group: Any, timeout: float | None, call: str) -> IntArray:
    """All-gather the numbers of a call, such as "the dispatch"; shape (ranks, numbers)."""
    torch, dist = import_torch()
    device = agreement_device(group)
    try:
        mine = torch.tensor(numbers, dtype=torch.int64, device=device)
        table = torch.empty((dist.get_world_size(group), len(numbers)), dtype=torch.int64, device=device)
        wait(dist.all_gather(list(table.unbind()), mine, group=group, async_op=True), timeout)
        rows: IntArray = table.cpu().numpy()
    except RuntimeError as error:
        why = explained(group, f"in {call}")
        raise ProgramError(f"the ranks could not agree on {call}: {first_line(error)}{why}") from error
    return rows


def refuse(error: UnsupportedError, length: int, group: Any, timeout: float | None, call: str) -> NoReturn:
    """Raise an error once the other ranks know that there is one, from a row of their `length`."""
    try:
        gathered([1] + [0] * (length - 1), group, timeout, call)
    except ProgramError:
        raise error from None
    raise error


def compare(
    table: IntArray,
    call: str,
    names: Sequence[str],
    digested: Sequence[str],
    words: Mapping[str, Mapping[int, str]] | None = None,
) -> None:
    """Raise on all ranks alike if a rank refused, or if they differ in the columns after the first.

    Values of `names` are told, by `words` for codes; those that are `digested` are not.
    """
    if table[:, 0].any():
        raise UnsupportedError(
            f"rank {int(table[:, 0].argmax())} refused its arguments of {call}, so all stop; that rank's message "
            "says why"
        )
    for at, name in enumerate((*names, *digested)):
        column = table[:, at + 1]
        if (other := int(np.argmax(column != column[0]))) != 0:
            known = {UNKNOWN: "not given", **(words or {}).get(name, {})}
            one, two = (known.get(value, value) for value in column[[0, other]].tolist())
            is_told = at < len(names)
            values = f": {one} on rank 0, {two} on rank {other}" if is_told else f", such as ranks 0 and {other}"
            raise UnsupportedError(f"the ranks disagree about {name}{values}; all have to make the same call")
