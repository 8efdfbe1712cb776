"""Makes sure that all ranks make the same all-to-all: all tell, all look, and all raise the same or none.

Nothing but int64 is exchanged, and always as many: Gloo ends the process where sizes differ.
"""

from __future__ import annotations

import hashlib
from typing import Any, NamedTuple

import numpy as np

from ....errors import ProgramError, UnsupportedError
from ....support.arrays import IntArray
from ..calls.agreement import first_line, wait
from ..calls.arguments import import_torch, telling_device
from .steps import Exchange

UNKNOWN = -1
NAMES = (
    "servers",
    "gpus_per_server",
    "max_stage_bytes",
    "stages",
    "the element type",
    "the kind of device",
    "whether traffic is given, and what",
)
TOLD = 4
"""So many of them are told as the numbers that they are, or stand for; the others are digests."""


class Terms(NamedTuple):
    """One rank's arguments, which fit together: rows to and from each rank, of so many bytes if it has any."""

    sends: list[int]
    takes: list[int]
    traffic: IntArray | None
    row_bytes: int | None
    dtype: str
    device: str
    servers: int
    gpus_per_server: int
    max_stage_bytes: int | None
    stages: str


def agreed_exchange(terms: Terms | UnsupportedError, group: Any, timeout: float | None) -> Exchange:
    """Tell the other ranks this one's terms, or that its arguments are wrong; return what all agree on.

    The matrix is checked here, so the splits of different ranks fit each other.
    """
    if isinstance(terms, UnsupportedError):
        try:
            _gathered([1] + [0] * (len(NAMES) + 1), group, timeout)
        except ProgramError:
            raise terms from None
        raise terms
    from ....planners.pairs.fast import STAGES

    size = UNKNOWN if terms.row_bytes is None else terms.row_bytes
    # No digest is 0, so that it can stand for no matrix.
    matrix = 0 if terms.traffic is None else 1 + _digest(terms.traffic.tobytes())
    stage = min(terms.max_stage_bytes or 0, 2**62)
    shape, kinds = (terms.servers, terms.gpus_per_server), (terms.dtype.encode(), terms.device.encode())
    way = tuple(STAGES).index(terms.stages)
    told = _gathered([0, size, *shape, stage, way, *map(_digest, kinds), matrix], group, timeout)
    row_bytes = _agreed_size(told)
    rows = terms.traffic
    if rows is None:
        splits = _gathered([*terms.sends, *terms.takes], group, timeout)
        rows = _fitting(splits[:, : len(terms.sends)], splits[:, len(terms.sends) :])
    return Exchange(rows.tobytes(), *shape, row_bytes, terms.stages, stage or None)


def _digest(data: bytes) -> int:
    """Return a number that fits an int64 with its sign, with one to spare."""
    return int.from_bytes(hashlib.blake2b(data, digest_size=7).digest())


def _gathered(numbers: list[int], group: Any, timeout: float | None) -> IntArray:
    """Exchange as many numbers on each rank; shape (ranks, numbers)."""
    torch, dist = import_torch()
    device = telling_device(group)
    try:
        mine = torch.tensor(numbers, dtype=torch.int64, device=device)
        table = torch.empty((dist.get_world_size(group), len(numbers)), dtype=torch.int64, device=device)
        wait(dist.all_gather(list(table.unbind()), mine, group=group, async_op=True), timeout)
        gathered: IntArray = table.cpu().numpy()
    except RuntimeError as error:
        raise ProgramError(f"the ranks could not agree on the all-to-all: {first_line(error)}") from error
    return gathered


def _agreed_size(told: IntArray) -> int:
    """Look at what all ranks have told; return the bytes of a row, 0 if nobody has any."""
    if told[:, 0].any():
        rank = int(np.flatnonzero(told[:, 0])[0])
        raise UnsupportedError(
            f"rank {rank} refused its arguments of the all-to-all, so all stop; that rank's message says why"
        )
    from ....planners.pairs.fast import STAGES

    for at, name in enumerate(NAMES):
        column = told[:, at + 2]
        if (other := int(np.argmax(column != column[0]))) != 0:
            one, two = (tuple(STAGES)[which] if name == "stages" else which for which in column[[0, other]].tolist())
            shown = f": {one} on rank 0, {two} on rank {other}" if at < TOLD else f", such as ranks 0 and {other}"
            raise UnsupportedError(f"the ranks disagree about {name}{shown}; all have to make the same call")
    sizes = told[:, 1]
    known = np.flatnonzero(sizes != UNKNOWN)
    if not known.size:
        return 0
    first = int(known[0])
    if strays := [int(rank) for rank in known if sizes[rank] != sizes[first]]:
        raise UnsupportedError(
            f"rows have {sizes[first]} bytes on rank {first} and {sizes[strays[0]]} on rank {strays[0]}; expected the "
            "same everywhere"
        )
    return int(sizes[first])


def _fitting(sends: IntArray, takes: IntArray) -> IntArray:
    """Compare what each rank sends with what the receivers expect."""
    if (sends != takes.T).any():
        source, target = (int(rank) for rank in np.argwhere(sends != takes.T)[0])
        raise UnsupportedError(
            f"rank {source} has {sends[source, target]} rows for rank {target}, which expects {takes[target, source]}; "
            "expected input and output split sizes that match"
        )
    return np.ascontiguousarray(sends)
