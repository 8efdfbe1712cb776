"""What bus bandwidth to expect of a machine: a proven bound, NCCL's model, and measurements of such machines."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import exp, log
from typing import TYPE_CHECKING, NamedTuple

from ...errors import UnsupportedError
from ...planners import bound, plan
from ...schedules import Bound, Collective
from ...schedules.collective import AnyCollective, as_collective
from ...support.quantities import as_several_bytes
from ...topologies import Topology
from ...topologies.builders import NetworkLike
from ...topologies.builders import topology as as_network
from .measurements import machine_of, measurements

if TYPE_CHECKING:
    import pandas as pd

SIZES = ("64K", "1M", "16M", "256M", "1G", "8G")
MARGIN = 0.9
"""Share of the least measurement below which a result counts as slow."""


class SizeExpectation(NamedTuple):
    """Bus bandwidths of one size in GB/s; None where nothing says any."""

    size: int  # Bytes as nccl-tests counts them
    bound: float  # No schedule exceeds it
    nccl: float | None  # By NCCL's model of its own algorithms
    algorithm: str  # NCCL's choice and protocol; empty without
    low: float | None  # Least and largest measurement
    high: float | None
    rows: int  # Measured curves at this size
    tables: tuple[str, ...]  # That they are from
    threshold: float | None  # Below it, something is wrong
    reason: str  # Of the threshold


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
    topology: NetworkLike, collective: AnyCollective = "allreduce", *, sizes: Iterable[int | str] = SIZES
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

    Examples
    --------
    >>> expectation = expect("dgx-h100", sizes=["1G"])
    >>> expectation.machines
    ('8 x H100', '8 x H200')
    >>> row = expectation.sizes[0]
    >>> row.bound, round(row.low), round(row.high)
    (700.0, 442, 468)
    """
    network, operation = as_network(topology), as_collective(collective)
    proven = bound(network, operation)
    machines = machine_of(network)
    rows = measurements()
    alike = rows[rows.machine.isin(machines) & (rows.collective == operation.name) & rows.busbw_gbps.gt(0)]
    return Expectation(
        network,
        operation,
        proven,
        machines,
        tuple(_expected(proven, alike, size) for size in as_several_bytes(sizes)),
    )


def _expected(proven: Bound, rows: pd.DataFrame, size: int) -> SizeExpectation:
    limit = float(proven.busbw)
    predicted, algorithm = _by_nccl(proven, size)
    measured = measured_at(rows, size)
    low, high = (min(measured.values()), max(measured.values())) if measured else (None, None)
    threshold, reason = None, "nothing was measured on such a machine"
    if low is not None:
        threshold, reason = MARGIN * low, f"{MARGIN:.0%} of the least of {len(measured)} measured"
    tables = tuple(dict.fromkeys(table for table, *_ in measured))
    return SizeExpectation(size, limit, predicted, algorithm, low, high, len(measured), tables, threshold, reason)


def _by_nccl(proven: Bound, size: int) -> tuple[float | None, str]:
    """Bus bandwidth by NCCL's model, with its choice; None where it has none for the network or collective."""
    try:
        best = plan(proven.topology, proven.collective, planner="nccl", size=size)
    except UnsupportedError:
        return None, ""
    factor = proven.collective.bus_factor(proven.topology.num_ranks)
    notes = best.provenance
    return float(factor) * size / float(notes["nccl_us"]) / 1000, f"{notes['algorithm']} {notes['protocol']}"


def measured_at(rows: pd.DataFrame, size: int) -> dict[tuple[str, ...], float]:
    """Interpolate the bus bandwidth of each measured curve at a size, on logarithmic axes; none outside of it."""
    values = {}
    keys = ["table", "machine", "software", "algorithm", "in_place"]
    for key, curve in rows.groupby(keys, dropna=False):
        points = curve.groupby("size_bytes").busbw_gbps.mean()
        below, above = points[points.index <= size], points[points.index >= size]
        if len(below) and len(above):
            (small, slow), (large, fast) = (below.index[-1], below.iloc[-1]), (above.index[0], above.iloc[0])
            share = 0 if small == large else log(size / small) / log(large / small)
            values[tuple(map(str, key))] = exp((1 - share) * log(slow) + share * log(fast))
    return values
