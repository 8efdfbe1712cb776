"""Reads the matrix of an all-to-allv and the servers that it is for, or says what is wrong with them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import UnsupportedError
from ...schedules.traffic.pair_input import check_table
from ...support.validation import as_whole, is_whole, shown

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = ["MOST_BYTES", "as_sizes", "as_traffic", "shaped", "unfit"]

MOST_BYTES = 2**62
"""All entries together stay below this."""
MOST_SERVERS = 2**10
MOST_RANKS = 2**15


def as_traffic(traffic: Any, servers: object, gpus_per_server: object) -> tuple[npt.NDArray[np.int64], int, int]:
    """Read the traffic between servers of equally many GPUs, with all checks.

    Shapes: `traffic` (ranks, ranks); returns int64 (ranks, ranks).
    """
    from ...solvers.fast.stages import fault_of

    n, m = as_whole(servers, "servers"), as_whole(gpus_per_server, "gpus_per_server")
    matrix = shaped(traffic, n, n * m, f"there are {n} servers of {m} GPUs")
    if fault := fault_of(matrix):
        raise unfit(fault, matrix)
    return matrix, n, m


def as_sizes(values: object, servers: int) -> tuple[int, ...]:
    """Read how many GPUs each server has; `UnsupportedError` if that is not one whole number for each of them."""
    dimensions = getattr(values, "ndim", 1)  # lists in a list are refused one by one
    if not isinstance(values, (Sequence, np.ndarray)) or isinstance(values, (str, bytes)) or dimensions != 1:
        raise UnsupportedError(f"gpus_per_server is {shown(values)}; expected a whole number, or one for each server")
    if len(values) != servers:
        raise UnsupportedError(f"gpus_per_server has {len(values)} numbers; expected one for each of {servers} servers")
    return tuple(as_whole(size, f"gpus_per_server[{server}]") for server, size in enumerate(values))


def shaped(traffic: Any, servers: int, ranks: int, told: str) -> npt.NDArray[np.int64]:
    """Copy a matrix of the right size and of integers; whether these are fit is for the kernel to say.

    Shapes: returns int64 (ranks, ranks).
    """
    try:
        given = np.asarray(traffic)
    except (TypeError, ValueError, OverflowError, RuntimeError):
        raise UnsupportedError(f"the traffic is {shown(traffic)}; expected a square matrix of bytes") from None
    if given.ndim != 2 or given.shape[0] != given.shape[1]:
        raise UnsupportedError(f"the traffic has shape {given.shape}; expected a square matrix, one row for each rank")
    if len(given) != ranks:
        raise UnsupportedError(f"the traffic is of {len(given)} ranks; expected {ranks}, as {told}")
    if servers > MOST_SERVERS or ranks > MOST_RANKS:
        raise UnsupportedError(
            f"the traffic is of {servers} servers and {ranks} ranks; expected at most {MOST_SERVERS} and {MOST_RANKS}"
        )
    if given is not traffic:
        check_table(traffic)
    if given.dtype.kind not in "iu":
        raise _not_integers(given)
    if given.dtype.kind == "u" and given.dtype.itemsize == 8 and given.max() >= MOST_BYTES:
        raise _wrong_entry(given, int(given.argmax()))
    return np.array(given, dtype=np.int64, order="C")


def unfit(fault: int, matrix: npt.NDArray[np.int64]) -> UnsupportedError:
    """Word what `fault_of` finds in a matrix."""
    from ...solvers.fast.stages import NEGATIVE

    if fault == NEGATIVE:
        return _wrong_entry(matrix, int((matrix < 0).argmax()))
    total = int(matrix.astype(object).sum())
    return UnsupportedError(f"the traffic adds up to {total} bytes; expected less than 2^62")


def _not_integers(given: npt.NDArray[Any]) -> UnsupportedError:
    """Name the type, and an entry that is no number of bytes, if there is one."""
    if given.dtype.kind == "f":
        # Comparisons with NaN are false, so this finds it too.
        wide = given.astype(np.result_type(given, np.float64))
        fine = (wide >= 0) & (wide < MOST_BYTES) & (wide == np.floor(wide))
    elif given.dtype.kind == "O":
        fine = np.array([_counts_bytes(entry) for entry in given.ravel()], dtype=bool).reshape(given.shape)
    else:
        fine = np.ones(given.shape, dtype=bool)
    mend = ", as traffic.astype(np.int64) has them" if given.dtype.kind in "fO" else ""
    if not fine.all():
        source, destination = divmod(int(fine.argmin()), len(given))
        mend = f", unlike {shown(given.item(source, destination))} from rank {source} to {destination}"
    return UnsupportedError(
        f"the traffic has entries of type {given.dtype}; expected integers, which count bytes and fit 64 bits{mend}"
    )


def _counts_bytes(entry: object) -> bool:
    return is_whole(entry) and 0 <= entry < MOST_BYTES


def _wrong_entry(given: npt.NDArray[np.integer[Any]], place: int) -> UnsupportedError:
    source, destination = divmod(place, len(given))
    entry = given.item(source, destination)
    return UnsupportedError(
        f"the traffic from rank {source} to {destination} is {entry} bytes; expected at least 0 and less than 2^62"
    )
