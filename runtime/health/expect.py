"""What bus bandwidth to expect of a machine: a proven bound, NCCL's model, and measurements of such machines."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from functools import cache
from math import exp, log
from typing import TYPE_CHECKING, NamedTuple

from ...errors import UnsupportedError
from ...planners import bound
from ...planners.literature.nccl_choice import machine_of as nccl_machine
from ...planners.literature.nccl_choice import nccl_choices
from ...planners.literature.nccl_tuning import ALGORITHMS, fastest
from ...schedules import COLLECTIVES, Bound, Collective
from ...schedules.collective import AnyCollective, as_collective
from ...support.formatting import count_text
from ...support.quantities import as_several_bytes
from ...topologies import Topology
from ...topologies.builders import NetworkLike
from ...topologies.builders import topology as as_network
from .measurements import machine_of, measured_machines, records, usual_rows

if TYPE_CHECKING:
    import pandas as pd

SIZES = ("64K", "1M", "16M", "256M", "1G", "8G")
STEADY = {False: 2**24, True: 2**28}
"""Bytes, in one box and in several, beyond which bandwidth counts and latency hardly does."""
MARGINS = {(False, False): 2.5, (False, True): 1.25, (True, False): 2.5, (True, True): 1.5}
"""Ratio between two tables of one kind of machine that is normal, by whether there are several boxes, and steady sizes.

Tables of 8 A100 at 1M and of two p5 at 128M differ by 2.2, of two p5 at 1G by 1.4, and of 8 H100 at 1G by 1.06.
"""
MODEL_MARGIN = 1.25  # Beyond the shares of NCCL's model
BANDS = tuple(2**exponent for exponent in (16, 20, 24, 28))
"""Sizes between which measurements are compared with NCCL's model."""


class SizeExpectation(NamedTuple):
    """Bus bandwidths of one size in GB/s; None where nothing says any.

    Attributes
    ----------
    size : int
        Bytes, as nccl-tests counts them.
    bound : float
        No schedule exceeds it.
    nccl, algorithm
        By NCCL's model of its own algorithms, and its choice with the protocol; empty without.
    low, high : float or None
        Least and largest measurement.
    rows, tables
        Number of measured curves at this size, and the tables that they are from.
    threshold, normal_high : float or None
        Least and most that is normal.
    reason : str
        Of these two.
    """

    size: int
    bound: float
    nccl: float | None
    algorithm: str
    low: float | None
    high: float | None
    rows: int
    tables: tuple[str, ...]
    threshold: float | None
    normal_high: float | None
    reason: str


@dataclass(frozen=True)
class Expectation:
    """Bus bandwidths to expect of a machine.

    Attributes
    ----------
    topology : Topology
        The machine.
    collective : Collective
        The collective.
    bound : Bound
        The bound of all schedules, with its proof.
    machines : tuple of str
        Measured machines that it compares to; see `machine_of`.
    sizes : tuple of SizeExpectation
        By size.
    """

    topology: Topology
    collective: Collective
    bound: Bound
    machines: tuple[str, ...]
    sizes: tuple[SizeExpectation, ...]

    def to_frame(self) -> pd.DataFrame:
        """Tabulate the sizes: a row for each, with the columns of `SizeExpectation`."""
        import pandas as pd

        return pd.DataFrame(list(self.sizes), columns=SizeExpectation._fields)


def expect(
    topology: NetworkLike,
    collective: AnyCollective = "allreduce",
    *,
    sizes: Iterable[int | str] = SIZES,
    without: Collection[str] = (),
    root: int | str | None = None,
) -> Expectation:
    """State which bus bandwidth is normal on a machine, and what proves or shows it.

    Raises as `collopt.bound`.

    Parameters
    ----------
    topology : Topology, networkx.Graph, str or path
        As for `collopt.bound`.
    collective : str or Collective
        As for `collopt.bound`.
    sizes : iterable of int or str
        Total sizes in bytes, as nccl-tests counts them.
    without : collection of str
        Tables of `measurements` to leave out, to compare the rest with them.
    root : int or str, optional
        As for `collopt.bound`.

    Notes
    -----
    What is normal spans the measurements of such machines, by NCCL or RCCL of their own choice, and the ratio by which
    tables of equal machines differ.  Without any, it spans what all measured machines of one box, or of several, reach
    of NCCL's model at such sizes.  Curves are interpolated on logarithmic axes.  The bound is that of endless data.

    Examples
    --------
    >>> expectation = expect("dgx-h100", sizes=["1G"])
    >>> expectation.machines
    ('8 x H100', '8 x H200')
    >>> row = expectation.sizes[0]
    >>> row.bound, round(row.nccl), round(row.low), round(row.high)
    (700.0, 473, 442, 468)
    """
    network, operation = as_network(topology), as_collective(collective)
    proven = bound(network, operation, root=root)
    machines, rows = machine_of(network), usual_rows()
    rows = rows[~rows.table.isin(without)]
    own_rows = rows[rows.machine.isin(machines) & (rows.collective == operation.name)]
    shares = model_shares(tuple(sorted(without)))
    sized = tuple(_expected(proven, own_rows, shares, size, root) for size in as_several_bytes(sizes))
    return Expectation(network, operation, proven, machines, sized)


def _expected(
    proven: Bound,
    rows: pd.DataFrame,
    shares: dict[tuple[bool, int], tuple[float, float]],
    size: int,
    root: int | str | None,
) -> SizeExpectation:
    limit = float(proven.busbw)
    predicted, algorithm, has_boxes = _by_nccl(proven, size, root)
    measured = measured_at(rows, size)
    tables = tuple(dict.fromkeys(table for table, *_ in measured))
    about = SizeExpectation(size, limit, predicted, algorithm, None, None, len(measured), tables, None, None, "")
    if measured:
        low, high = min(measured.values()), max(measured.values())
        margin = MARGINS[has_boxes, size > STEADY[has_boxes]]
        curves = count_text(len(measured), "curve")
        what = f"{low:.4g} GB/s / {margin} to {high:.4g} GB/s x {margin}, from {curves} of such machines"
        normal = low / margin, high * margin
        about = about._replace(low=low, high=high)
    elif predicted is not None and (share := shares.get((has_boxes, _band(size)))):
        kind = "machines of several boxes" if has_boxes else "boxes"
        what = f"{share[0]:.0%} to {share[1]:.0%} of NCCL's model, as other {kind}"
        normal = share[0] * predicted, share[1] * predicted
    else:
        return about._replace(reason="nothing like it was measured, and NCCL's model does not cover it")
    return about._replace(threshold=normal[0], normal_high=min(limit, normal[1]), reason=what)


def _by_nccl(proven: Bound, size: int, root: int | str | None) -> tuple[float | None, str, bool]:
    """Bus bandwidth by NCCL's model, its choice, and whether there are several boxes; None where there is no model."""
    topology, collective = proven.topology, proven.collective
    if collective not in ALGORITHMS:
        return None, "", False
    try:
        best = nccl_choices(topology, collective, size, root=root)[0]
    except UnsupportedError:
        return None, "", False
    factor = float(collective.bus_factor(topology.num_ranks))
    has_boxes = nccl_machine(topology).boxes > 1
    return factor * size / float(best.time) / 1000, f"{best.algorithm} {best.protocol}", has_boxes


def measured_at(rows: pd.DataFrame, size: int) -> dict[tuple[str, ...], float]:
    """Interpolate the bus bandwidth of each measured curve at a size, on logarithmic axes; none outside of it."""
    values: dict[tuple[str, ...], float] = {}
    keys = ["table", "machine", "software", "algorithm", "in_place"]
    for key, curve in rows.groupby(keys, dropna=False):
        means = curve.groupby("size_bytes").busbw_gbps.mean()
        points: list[tuple[int, float]] = list(zip(means.index.tolist(), means.tolist(), strict=True))
        below, above = [point for point in points if point[0] <= size], [point for point in points if point[0] >= size]
        if below and above:
            (small, slow), (large, fast) = below[-1], above[0]
            share = 0 if small == large else log(size / small) / log(large / small)
            values[tuple(map(str, key))] = exp((1 - share) * log(slow) + share * log(fast))
    return values


@cache
def model_shares(without: tuple[str, ...] = ()) -> dict[tuple[bool, int], tuple[float, float]]:
    """Range of measured by modelled bandwidth, by whether there are several boxes and the band of sizes."""
    rows, machines = usual_rows(), measured_machines()
    shares: dict[tuple[bool, int], list[float]] = {}
    for row in records(rows[~rows.table.isin(without)]):
        collective, size = COLLECTIVES[row["collective"]], int(row["size_bytes"])
        if row["machine"] in machines and collective in ALGORITHMS:
            machine = machines[row["machine"]][0]
            if machine.is_switched:
                time = float(fastest(machine, collective, size).time)
                modelled = float(collective.bus_factor(machine.ranks)) * size / time / 1000
                shares.setdefault((machine.boxes > 1, _band(size)), []).append(row["busbw_gbps"] / modelled)
    return {key: (min(values) / MODEL_MARGIN, max(values) * MODEL_MARGIN) for key, values in shares.items()}


def _band(size: int) -> int:
    return sum(int(size > edge) for edge in BANDS)
