"""FAST: all-to-allv on servers of several GPUs, planned at run time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import cache, partial
from math import gcd
from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import UnsupportedError
from ...schedules.collective import check_table
from ...schedules.stages.schedule import AllToAllvSchedule
from ...schedules.stages.segments import lane_counts, lane_rate
from ...schedules.stages.two_tier_cost import H200, TwoTierModel, check_model
from ...support.arrays import IntArray, read_only
from ...support.quantities import Exact, as_amount
from ...support.validation import as_list, as_whole, is_whole, shown

if TYPE_CHECKING:
    import numpy.typing as npt
    import pandas as pd

    Staged = tuple[int, IntArray, IntArray, IntArray, IntArray, IntArray, IntArray]

STAGES = {"plain": 0, "fewest": 1, "rotations": 2}
"""How stages are found: any matching that is repaired, the widest one each time, or shifts; and their codes."""
CHOSEN = 3  # the code where none is given
MAX_BYTES = 2**62  # all entries together stay below this
MAX_SERVERS = 2**10
MAX_RANKS = 2**15
MAX_CUTS = 1024  # of the bound, where scratch is limited
LINK_CUTS = (32, 16)  # of the bound, where links inside servers are slow
FEW_SERVERS = 16  # of which the fewest stages are found within a millisecond
AREAS = 4  # of scratch, each at most as large as a stage


def schedule_all_to_allv(
    traffic: npt.ArrayLike | pd.DataFrame,
    *,
    servers: int,
    gpus_per_server: int | Sequence[int],
    nics: Sequence[Sequence[Exact]] | None = None,
    stages: str | None = None,
    max_stage_bytes: int | None = None,
    max_scratch_bytes: int | None = None,
    unit_bytes: int = 1,
    model: TwoTierModel = H200,
) -> AllToAllvSchedule:
    """Plan an all-to-allv by FAST; the schedule is a deterministic function of the arguments.

    It is complete: streams, their segments, stages and intervals.  Raises `UnsupportedError` for a matrix that is not
    square, of another size, or of other entries than integers from 0 on that add up to less than 2^62; for wrong labels
    or options; if there would be too many stages; or if the scratch does not suffice.

    Parameters
    ----------
    traffic : ndarray or DataFrame of integers, shape (ranks, ranks)
        ``traffic[s, d]`` bytes from rank s to rank d, where rank r is GPU ``r % gpus_per_server`` of server
        ``r // gpus_per_server``.  It is copied.  A frame's labels must be the same for rows and columns, in one order.
    servers : int
        Number of servers.
    gpus_per_server : int or sequence of int
        Of each; or one number for each server, and ranks are then counted through the servers in turn.
    nics : sequence of sequence of numbers, optional
        Rate of each GPU's NIC over `TwoTierModel.scale_out`, one row for each server: 0 for a GPU without one or whose
        NIC failed, 1/2 for a slow one.  By default all are 1.
    stages : {"plain", "fewest", "rotations"}, optional
        "plain" plans in microseconds.  "fewest" needs a fraction of the stages, and longer to plan.  "rotations" are
        one shift for each other server, each as long as its longest stream.  By default whichever has the least
        predicted time, of those that are planned soon enough.  Where servers or NICs are unequal, stages are between
        parts of servers, or by default between whole ones if that takes less time.
    max_stage_bytes : int, optional
        Cuts stages so that no NIC sends more in one, which shortens the last stage's redistribution and needs less
        scratch, at the price of more stages.  By default the bound over the square root of ``c T / wake_up``, where T
        is its time and ``c = (gpus_per_server - 1) scale_out / scale_up``, at most 1024; but no more than a MiB, or a
        16th of what a GPU sends to other servers on average.  Where links of a mesh are slow, longer ones are tried.
    max_scratch_bytes : int, optional
        Limit of `AllToAllvSchedule.scratch_bytes` on every rank.  If `max_stage_bytes` is not given, stages are cut
        shorter to keep it, but not below a 1024th of the bound.
    unit_bytes : int
        Bytes of what `traffic` counts, such as tokens; nothing smaller is divided, and the schedule counts the same.
        The other arguments are in bytes.
    model : TwoTierModel
        What the defaults of `stages` and `max_stage_bytes` are predicted with.

    Notes
    -----
    FAST, section 4, run step by step: step t balances stage t, sends stage t - 1 and redistributes stage t - 2.
    Matrices are Birkhoff's after raising light rows and columns; stages ascend in size.

    Examples
    --------
    Two servers of two GPUs; GPU 0 has all the data and hands half of it over:

    >>> traffic = np.zeros((4, 4), dtype=np.int64)
    >>> traffic[0, 2:] = 6, 4
    >>> schedule = schedule_all_to_allv(traffic, servers=2, gpus_per_server=2)
    >>> schedule.unbalanced_bound, schedule.lower_bound
    (10, Fraction(5, 1))
    """
    if stages is not None and (not isinstance(stages, str) or stages not in STAGES):
        raise UnsupportedError(f"stages is {shown(stages)}; expected one of {', '.join(STAGES)}")
    # Read the arguments: limits in units of traffic, servers with their GPUs, and the rates of NICs.
    unit = as_whole(unit_bytes, "unit_bytes")
    cap = 0
    if max_stage_bytes is not None:
        cap = max(1, min(MAX_BYTES, as_whole(max_stage_bytes, "max_stage_bytes")) // unit)
    check_model(model)
    n = as_whole(servers, "servers")
    sizes: tuple[int, ...] = ()
    if type(gpus_per_server) is not int and hasattr(gpus_per_server, "__len__"):
        sizes = as_sizes(gpus_per_server, n)
        gpus_per_server = gcd(*sizes)
        sizes = sizes if min(sizes) < max(sizes) else ()
    m = as_whole(gpus_per_server, "gpus_per_server")
    if sizes:
        matrix = shaped(traffic, n, sum(sizes), f"the servers' GPUs add up to {sum(sizes)}")
    else:
        matrix = shaped(traffic, n, n * m, f"there are {n} servers of {m} GPUs")
    per_up, per_out, wake_up, floor = model.prices
    prices, lanes = (per_up * unit, per_out * unit, wake_up, floor / unit), 1
    rates: tuple[tuple[Fraction, ...], ...] = ()
    if nics is not None and (rates := as_rates(nics, sizes or (m,) * n)):
        rate, sizes = lane_rate(rates), sizes or (m,) * n
        prices, lanes = (prices[0], prices[1] / float(rate), *prices[2:]), int(max(map(max, rates)) / rate)
    way = CHOSEN if stages is None else STAGES[stages]
    # Plan; try longer stages on slow links, and shorter ones where scratch is limited.
    plan = partial(_staged, matrix, m, sizes, rates, prices)
    schedule = plan(cap and max(1, cap // lanes), way)
    if not cap and model.waits_for_links:
        schedule = _fastest_on_links(schedule, plan, model.of_units(unit), way)
    if max_scratch_bytes is not None:
        limit = as_whole(max_scratch_bytes, "max_scratch_bytes", low=0)
        if not cap and schedule.scratch_bytes.max() * unit > limit:
            schedule = plan(max(1, limit // unit // AREAS // lanes, -(-schedule.scale_out_bytes // MAX_CUTS)), way)
        _check_scratch(schedule, limit, unit)
    return schedule


def _fastest_on_links(
    schedule: AllToAllvSchedule, plan: Callable[[int, int], AllToAllvSchedule], model: TwoTierModel, way: int
) -> AllToAllvSchedule:
    """Try longer stages too, and fewer in small clusters: short ones have the bytes of few cells, on few links."""
    ways = {way, STAGES["fewest"]} if way == CHOSEN and schedule.servers <= FEW_SERVERS else {way}
    longest = [-(-schedule.scale_out_bytes // cut) for cut in LINK_CUTS]
    schedules = [schedule, *(plan(cap, candidate) for cap in longest if cap for candidate in sorted(ways))]
    return min(schedules, key=lambda candidate: candidate.completion_time(model))


def _check_scratch(schedule: AllToAllvSchedule, limit: int, unit: int) -> None:
    """Raise `UnsupportedError` if a rank needs more scratch than the limit, in bytes."""
    if (scratch := int(schedule.scratch_bytes.max()) * unit) > limit:
        longest, smallest = limit // AREAS, int(schedule.lane_counts.max()) * unit
        other_way = f", or max_stage_bytes of at most {longest}" if longest >= smallest else ""
        raise UnsupportedError(
            f"the exchange needs {scratch} bytes of scratch on rank {schedule.scratch_bytes.argmax()}, with stages of "
            f"up to {schedule.stage_bytes[-1] * smallest} bytes, and max_scratch_bytes is {limit}; expected at least "
            f"{scratch}{other_way}"
        )


def _staged(
    matrix: npt.NDArray[np.int64],
    gpus: int,
    sizes: tuple[int, ...],
    nics: tuple[tuple[Fraction, ...], ...],
    prices: tuple[float, float, float, float],
    cap: int,
    way: int,
) -> AllToAllvSchedule:
    """Plan traffic that has the right shape, with all checks of its entries; `sizes` where servers or NICs differ."""
    staged_exchange, laned_exchange = _kernels()
    if sizes:
        counts = lane_counts(nics) if nics else np.ones(len(matrix), dtype=np.int64)
        columns = laned_exchange(matrix, sizes, counts, way, cap, prices)
    else:
        columns = staged_exchange(matrix, len(matrix) // gpus, gpus, way, cap, prices)
    fault, starts, segments, lengths, partners, begins, ends = columns
    if fault:
        raise _traffic_error(fault, matrix, cap)
    for array in (starts, segments, lengths, partners, begins, ends):
        array.setflags(write=False)
    parts = partners.shape[1]
    width = (len(starts) - 1) // parts**2
    # A view, as kernels would be compiled again for a matrix that is read-only when it is planned once more.
    return AllToAllvSchedule.of_own(
        read_only(matrix), parts, width, starts, segments, lengths, partners, begins, ends, sizes, nics
    )


@cache
def _kernels() -> tuple[Callable[..., Staged], Callable[..., Staged]]:
    """Import the kernels for equal and unequal servers, once: even repeated imports take longer than some plans."""
    from ...solvers.steps.stages import laned_exchange, staged_exchange

    return staged_exchange, laned_exchange


def _traffic_error(fault: int, matrix: npt.NDArray[np.int64], cap: int) -> UnsupportedError:
    from ...solvers.steps.stages import TOO_MANY

    if fault != TOO_MANY:
        return matrix_error(fault, matrix)
    if cap:
        return UnsupportedError(f"max_stage_bytes is {cap}, which makes too many stages; expected a larger one")
    return UnsupportedError('the traffic needs too many stages to keep; expected fewer servers, or stages="fewest"')


def as_traffic(traffic: Any, servers: object, gpus_per_server: object) -> tuple[npt.NDArray[np.int64], int, int]:
    """Read traffic of shape (ranks, ranks) between servers of equally many GPUs, with all checks."""
    from ...solvers.steps.stages import fault_of

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


def as_rates(nics: object, sizes: tuple[int, ...]) -> tuple[tuple[Fraction, ...], ...]:
    """Read the rates of NICs, one row for each server; empty if all are 1."""
    rows = [as_list(row, f"nics[{server}]") for server, row in enumerate(as_list(nics, "nics"))]
    if len(rows) != len(sizes):
        raise UnsupportedError(f"nics has {len(rows)} rows; expected one for each of {len(sizes)} servers")
    for server, (row, size) in enumerate(zip(rows, sizes, strict=True)):
        if len(row) != size:
            raise UnsupportedError(f"nics[{server}] has {len(row)} rates; expected one for each of {size} GPUs")
    rates = tuple(tuple(as_amount(rate) for rate in row) for row in rows)
    for server, server_rates in enumerate(rates):
        if not any(server_rates):
            raise UnsupportedError(f"nics[{server}] has no rate above 0; expected at least one NIC in each server")
    if (lanes := sum(map(sum, rates)) / lane_rate(rates)) > MAX_RANKS:
        raise UnsupportedError(
            f"the rates of nics are {lanes} times the largest that divides all; expected up to {MAX_RANKS}: take "
            "rounder rates"
        )
    return () if all(rate == 1 for row in rates for rate in row) else rates


def shaped(traffic: Any, servers: int, ranks: int, expectation: str) -> npt.NDArray[np.int64]:
    """Copy a matrix to int64 (ranks, ranks), of the right size and of integers; the kernel checks their values."""
    try:
        array = np.asarray(traffic)
    except (TypeError, ValueError, OverflowError, RuntimeError):
        raise UnsupportedError(f"the traffic is {shown(traffic)}; expected a square matrix of bytes") from None
    if array.ndim != 2 or array.shape[0] != array.shape[1]:
        raise UnsupportedError(f"the traffic has shape {array.shape}; expected a square matrix, one row for each rank")
    if len(array) != ranks:
        raise UnsupportedError(f"the traffic is of {len(array)} ranks; expected {ranks}, as {expectation}")
    if servers > MAX_SERVERS or ranks > MAX_RANKS:
        raise UnsupportedError(
            f"the traffic is of {servers} servers and {ranks} ranks; expected at most {MAX_SERVERS} and {MAX_RANKS}"
        )
    if array is not traffic:
        check_table(traffic)
    if array.dtype.kind not in "iu":
        is_float = array.dtype.kind == "f"
        wrong_places = (place for place in range(array.size) if not _is_amount(array.item(place), is_float))
        raise _wrong_entry(array, next(wrong_places, 0))
    if array.dtype.kind == "u" and array.dtype.itemsize == 8 and array.max() >= MAX_BYTES:
        raise _wrong_entry(array, int(array.argmax()))
    return np.array(array, dtype=np.int64, order="C")


def matrix_error(fault: int, matrix: npt.NDArray[np.int64]) -> UnsupportedError:
    """Return the error for a fault that `fault_of` finds in a matrix."""
    from ...solvers.steps.stages import NEGATIVE

    if fault == NEGATIVE:
        return _wrong_entry(matrix, int((matrix < 0).argmax()))
    total = int(matrix.astype(object).sum())
    return UnsupportedError(f"the traffic adds up to {total} bytes; expected less than 2^62")


def _wrong_entry(array: npt.NDArray[Any], place: int) -> UnsupportedError:
    source, destination = divmod(place, len(array))
    return UnsupportedError(
        f"the traffic from rank {source} to {destination} is {shown(array.item(source, destination))}, of type "
        f"{array.dtype}; expected integers, which count bytes, from 0 to 2^62 - 1"
    )


def _is_amount(entry: Any, is_float: bool) -> bool:
    """Whether an entry is a number of bytes, at least in value where all are floats."""
    return (is_whole(entry) or (is_float and entry == entry // 1)) and 0 <= entry < MAX_BYTES
