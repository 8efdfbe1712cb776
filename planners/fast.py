"""FAST: all-to-allv on servers of several GPUs, planned on the fly."""

from __future__ import annotations

from operator import index
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import UnsupportedError
from ..schedules.all_to_allv import AllToAllvSchedule
from ..topologies.validation import shown

if TYPE_CHECKING:
    import numpy.typing as npt
    import pandas as pd

__all__ = ["STAGES", "as_traffic", "schedule_all_to_allv"]

STAGES = {"plain": 0, "fewest": 1}
"""How stages are found: any matching that is repaired, or the widest one each time."""
NO_CAP = 2**62
MOST_SERVERS = 2**10
MOST_RANKS = 2**15


def schedule_all_to_allv(
    traffic: npt.ArrayLike | pd.DataFrame,
    *,
    servers: int,
    gpus_per_server: int,
    stages: str = "plain",
    max_stage_bytes: int | None = None,
) -> AllToAllvSchedule:
    """Plan an all-to-allv; the same matrix gives the same schedule everywhere.

    Parameters
    ----------
    traffic : ndarray or DataFrame of integers, shape (ranks, ranks)
        ``traffic[s, d]`` bytes from rank s to rank d, where rank r is GPU ``r % gpus_per_server`` of server
        ``r // gpus_per_server``.  It is copied.
    servers, gpus_per_server : int
        Their product is the number of ranks.
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

    Raises
    ------
    UnsupportedError
        If the matrix is not square, has a wrong size, entries that are no integers or negative, or sums beyond 2^62; if
        an option is not one of those above, or there would be too many stages.

    Notes
    -----
    FAST, section 4.  Matrices are Birkhoff's after raising light rows and columns; stages ascend in size.

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
    from ..solvers.staged_exchange import staged_exchange

    if not isinstance(stages, str) or stages not in STAGES:
        raise UnsupportedError(f"stages is {shown(stages)}; expected one of {', '.join(STAGES)}")
    cap = NO_CAP if max_stage_bytes is None else min(NO_CAP, _count(max_stage_bytes, "max_stage_bytes"))
    matrix, n, m = _shaped(traffic, servers, gpus_per_server)
    fault, *arrays = staged_exchange(matrix, n, m, STAGES[stages], cap)
    if fault:
        raise _refusal(fault, matrix, cap)
    for array in (matrix, *arrays):
        array.setflags(write=False)
    return AllToAllvSchedule(matrix, n, m, *arrays)


def as_traffic(traffic: Any, servers: object, gpus_per_server: object) -> tuple[npt.NDArray[np.int64], int, int]:
    """Read what `schedule_all_to_allv` takes, with all its checks; return a copy of the matrix, n and m."""
    from ..solvers.staged_exchange import fault_of

    matrix, n, m = _shaped(traffic, servers, gpus_per_server)
    if fault := fault_of(matrix):
        raise _refusal(fault, matrix, NO_CAP)
    return matrix, n, m


def _count(value: object, name: str) -> int:
    if type(value) is not int:
        if isinstance(value, (bool, np.bool_)):
            raise UnsupportedError(f"{name} is {shown(value)}; expected a whole number of at least 1")
        try:
            value = index(value)  # type: ignore[arg-type]
        except TypeError:
            raise UnsupportedError(f"{name} is {shown(value)}; expected a whole number of at least 1") from None
    if value < 1:
        raise UnsupportedError(f"{name} is {shown(value)}; expected a whole number of at least 1")
    return value


def _shaped(traffic: Any, servers: object, gpus_per_server: object) -> tuple[npt.NDArray[np.int64], int, int]:
    """Copy the matrix, of the right size and of integers; the kernel looks at the entries."""
    n, m = _count(servers, "servers"), _count(gpus_per_server, "gpus_per_server")
    try:
        given = np.asarray(traffic)
    except (TypeError, ValueError, OverflowError):
        raise UnsupportedError(f"the traffic is {shown(traffic)}; expected a square matrix of bytes") from None
    if given.ndim != 2 or given.shape[0] != given.shape[1]:
        raise UnsupportedError(f"the traffic has shape {given.shape}; expected a square matrix, one row for each rank")
    if len(given) != n * m:
        raise UnsupportedError(
            f"the traffic is of {len(given)} ranks; expected {n * m}, as there are {n} servers of {m} GPUs"
        )
    if n > MOST_SERVERS or len(given) > MOST_RANKS:
        raise UnsupportedError(
            f"the traffic is of {n} servers and {len(given)} ranks; expected at most {MOST_SERVERS} and {MOST_RANKS}"
        )
    if given.dtype.kind not in "iu":
        raise UnsupportedError(
            f"the traffic has entries of type {given.dtype}; expected integers, which count bytes and fit 64 bits"
        )
    if given.dtype.kind == "u" and given.dtype.itemsize == 8 and given.max() >= NO_CAP:
        raise UnsupportedError(f"the traffic has the entry {given.max()}; expected bytes that add up to less than 2^62")
    return np.array(given, dtype=np.int64, order="C"), n, m


def _refusal(fault: int, matrix: npt.NDArray[np.int64], cap: int) -> UnsupportedError:
    from ..solvers.staged_exchange import NEGATIVE, TOO_LARGE

    if fault == NEGATIVE:
        source, destination = (int(place) for place in np.argwhere(matrix < 0)[0])
        entry = matrix[source, destination]
        return UnsupportedError(
            f"the traffic from rank {source} to {destination} is {entry} bytes; expected at least 0"
        )
    if fault == TOO_LARGE:
        total = int(matrix.astype(object).sum())
        return UnsupportedError(f"the traffic adds up to {total} bytes; expected less than 2^62")
    if cap < NO_CAP:
        return UnsupportedError(f"max_stage_bytes is {cap}, which makes too many stages; expected a larger one")
    return UnsupportedError(
        'the traffic needs too many stages to keep them all; expected fewer servers, or stages="fewest"'
    )
