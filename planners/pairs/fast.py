"""FAST: all-to-allv on servers of several GPUs, planned at run time."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from math import gcd
from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import UnsupportedError
from ...schedules.fast.schedule import AllToAllvSchedule
from ...schedules.traffic.sizes import check_table
from ...support.validation import as_whole, is_whole, shown

if TYPE_CHECKING:
    import numpy.typing as npt
    import pandas as pd

STAGES = {"plain": 0, "fewest": 1}  # how stages are found: any matching that is repaired, or the widest one each time
MAX_BYTES = 2**62  # all entries together stay below this
MAX_SERVERS = 2**10
MAX_RANKS = 2**15


def schedule_all_to_allv(
    traffic: npt.ArrayLike | pd.DataFrame,
    *,
    servers: int,
    gpus_per_server: int | Sequence[int],
    stages: str = "plain",
    max_stage_bytes: int | None = None,
) -> AllToAllvSchedule:
    """Plan an all-to-allv; the schedule is a deterministic function of the matrix.

    Raises `UnsupportedError` if the matrix is not square, has a wrong size, entries that are no integers or negative,
    or sums beyond 2^62; for wrong labels or options; or if there would be too many stages.

    Parameters
    ----------
    traffic : ndarray or DataFrame of integers, shape (ranks, ranks)
        ``traffic[s, d]`` bytes from rank s to rank d, where rank r is GPU ``r % gpus_per_server`` of server
        ``r // gpus_per_server``.  It is copied.  A frame's labels must be the same for rows and columns, in one order.
    servers : int
        Number of servers.
    gpus_per_server : int or sequence of int
        Of each; or one number for each server, and ranks are then counted through the servers in turn.
    stages : {"plain", "fewest"}
        "plain" plans in microseconds, "fewest" needs a fraction of the stages, and longer to plan where there are many
        servers.
    max_stage_bytes : int, optional
        Cuts stages so that no GPU sends more in one.  This shortens the last stage's redistribution, which nothing
        hides, at the price of more stages.

    Returns
    -------
    AllToAllvSchedule
        Complete: streams, their segments, stages and intervals.

    Notes
    -----
    FAST, section 4.  Matrices are Birkhoff's after raising light rows and columns; stages ascend in size.  Servers of
    unequal sizes are cut into parts of as many GPUs as divides all sizes, which is no part of the paper; the fewer that
    is, the more stages there are.

    Examples
    --------
    Two servers of two GPUs; GPU 0 has all the data and hands half of it over:

    >>> traffic = np.zeros((4, 4), dtype=np.int64)
    >>> traffic[0, 2:] = 6, 4
    >>> schedule = schedule_all_to_allv(traffic, servers=2, gpus_per_server=2)
    >>> schedule
    <AllToAllvSchedule: 2 servers of 2 GPUs, 1 stage>
    >>> schedule.unbalanced_bound, schedule.lower_bound
    (10, Fraction(5, 1))
    """
    from ...solvers.fast.stages import staged_exchange

    if not isinstance(stages, str) or stages not in STAGES:
        raise UnsupportedError(f"stages is {shown(stages)}; expected one of {', '.join(STAGES)}")
    cap = MAX_BYTES if max_stage_bytes is None else min(MAX_BYTES, as_whole(max_stage_bytes, "max_stage_bytes"))
    n = as_whole(servers, "servers")
    if type(gpus_per_server) is not int and hasattr(gpus_per_server, "__len__"):
        each = as_sizes(gpus_per_server, n)
        if min(each) < max(each):
            return _unequal_servers_schedule(traffic, each, STAGES[stages], cap)
        gpus_per_server = each[0]
    m = as_whole(gpus_per_server, "gpus_per_server")
    matrix = shaped(traffic, n, n * m, f"there are {n} servers of {m} GPUs")
    fault, starts, segments, sizes, partners, begins, ends = staged_exchange(matrix, n, m, STAGES[stages], cap)
    if fault:
        raise _traffic_error(fault, matrix, cap)
    for array in (matrix, starts, segments, sizes, partners, begins, ends):
        array.setflags(write=False)
    return AllToAllvSchedule(matrix, n, m, starts, segments, sizes, partners, begins, ends)


def _unequal_servers_schedule(
    traffic: npt.ArrayLike | pd.DataFrame, sizes: tuple[int, ...], decomposition: int, cap: int
) -> AllToAllvSchedule:
    from ...solvers.fast.unequal_servers import unequal_exchange

    ranks, m = sum(sizes), gcd(*sizes)
    matrix = shaped(traffic, ranks // m, ranks, f"the servers' GPUs add up to {ranks}")
    firsts = np.array([0, *accumulate(sizes)], dtype=np.int64)
    fault, starts, segments, lengths, partners, begins, ends = unequal_exchange(matrix, firsts, m, decomposition, cap)
    if fault:
        raise _traffic_error(fault, matrix, cap)
    for array in (matrix, starts, segments, lengths, partners, begins, ends):
        array.setflags(write=False)
    return AllToAllvSchedule(matrix, ranks // m, m, starts, segments, lengths, partners, begins, ends, sizes)


def _traffic_error(fault: int, matrix: npt.NDArray[np.int64], cap: int) -> UnsupportedError:
    from ...solvers.fast.stages import TOO_MANY

    if fault != TOO_MANY:
        return matrix_error(fault, matrix)
    if cap < MAX_BYTES:
        return UnsupportedError(f"max_stage_bytes is {cap}, which makes too many stages; expected a larger one")
    return UnsupportedError('the traffic needs too many stages to keep; expected fewer servers, or stages="fewest"')


def as_traffic(traffic: Any, servers: object, gpus_per_server: object) -> tuple[npt.NDArray[np.int64], int, int]:
    """Read traffic of shape (ranks, ranks) between servers of equally many GPUs, with all checks."""
    from ...solvers.fast.stages import fault_of

    n, m = as_whole(servers, "servers"), as_whole(gpus_per_server, "gpus_per_server")
    matrix = shaped(traffic, n, n * m, f"there are {n} servers of {m} GPUs")
    if fault := fault_of(matrix):
        raise matrix_error(fault, matrix)
    return matrix, n, m


def as_sizes(values: object, servers: int) -> tuple[int, ...]:
    """Read the number of GPUs of each server; `UnsupportedError` if that is not one integer for each."""
    dimensions = getattr(values, "ndim", 1)  # lists in a list are refused one by one
    if not isinstance(values, (Sequence, np.ndarray)) or isinstance(values, (str, bytes)) or dimensions != 1:
        raise UnsupportedError(f"gpus_per_server is {shown(values)}; expected a whole number, or one for each server")
    if len(values) != servers:
        raise UnsupportedError(f"gpus_per_server has {len(values)} numbers; expected one for each of {servers} servers")
    return tuple(as_whole(size, f"gpus_per_server[{server}]") for server, size in enumerate(values))


def shaped(traffic: Any, servers: int, ranks: int, expectation: str) -> npt.NDArray[np.int64]:
    """Copy a matrix to int64 (ranks, ranks), of the right size and of integers; the kernel checks their values."""
    try:
        given = np.asarray(traffic)
    except (TypeError, ValueError, OverflowError, RuntimeError):
        raise UnsupportedError(f"the traffic is {shown(traffic)}; expected a square matrix of bytes") from None
    if given.ndim != 2 or given.shape[0] != given.shape[1]:
        raise UnsupportedError(f"the traffic has shape {given.shape}; expected a square matrix, one row for each rank")
    if len(given) != ranks:
        raise UnsupportedError(f"the traffic is of {len(given)} ranks; expected {ranks}, as {expectation}")
    if servers > MAX_SERVERS or ranks > MAX_RANKS:
        raise UnsupportedError(
            f"the traffic is of {servers} servers and {ranks} ranks; expected at most {MAX_SERVERS} and {MAX_RANKS}"
        )
    if given is not traffic:
        check_table(traffic)
    if given.dtype.kind not in "iu":
        raise _not_integers(given)
    if given.dtype.kind == "u" and given.dtype.itemsize == 8 and given.max() >= MAX_BYTES:
        raise _wrong_entry(given, int(given.argmax()))
    return np.array(given, dtype=np.int64, order="C")


def matrix_error(fault: int, matrix: npt.NDArray[np.int64]) -> UnsupportedError:
    """Return the error for a fault that `fault_of` finds in a matrix."""
    from ...solvers.fast.stages import NEGATIVE

    if fault == NEGATIVE:
        return _wrong_entry(matrix, int((matrix < 0).argmax()))
    total = int(matrix.astype(object).sum())
    return UnsupportedError(f"the traffic adds up to {total} bytes; expected less than 2^62")


def _not_integers(given: npt.NDArray[Any]) -> UnsupportedError:
    """Return the error for a matrix that is not of integers, with a wrong entry."""
    if given.dtype.kind == "f":
        # Comparisons with NaN are false, so this finds it too.
        wide = given.astype(np.result_type(given, np.float64))
        fine = (wide >= 0) & (wide < MAX_BYTES) & (wide == np.floor(wide))
    elif given.dtype.kind == "O":
        fine = np.array([is_whole(entry) and 0 <= entry < MAX_BYTES for entry in given.ravel()], dtype=bool).reshape(
            given.shape
        )
    else:
        fine = np.ones(given.shape, dtype=bool)
    mend = ", as traffic.astype(np.int64) has them" if given.dtype.kind in "fO" else ""
    if not fine.all():
        source, destination = divmod(int(fine.argmin()), len(given))
        mend = f", unlike {shown(given.item(source, destination))} from rank {source} to {destination}"
    return UnsupportedError(
        f"the traffic has entries of type {given.dtype}; expected integers, which count bytes and fit 64 bits{mend}"
    )


def _wrong_entry(given: npt.NDArray[np.integer[Any]], place: int) -> UnsupportedError:
    source, destination = divmod(place, len(given))
    entry = given.item(source, destination)
    return UnsupportedError(
        f"the traffic from rank {source} to {destination} is {entry} bytes; expected at least 0 and less than 2^62"
    )
