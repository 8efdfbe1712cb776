"""All-to-allv without proxies, to compare FAST with: every byte goes straight from its origin to its final GPU."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from math import lcm
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from collopt.errors import CapacityOverflowError, CertificateError
from collopt.planners.pairs.fast import as_traffic
from collopt.schedules.fast.two_tier_cost import TwoTierModel, check_model
from collopt.support.arrays import read_only
from collopt.support.quantities import Exact, as_amount

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["BASELINES", "DirectExchange", "at_once", "spread_out", "unbalanced_birkhoff"]

IntArray = npt.NDArray[np.int64]

INCAST_LOSS = Fraction(1, 20)
"""An assumption, not a measurement: FAST's section 5.1.1 finds RCCL's exchange between 1.1 and 10 times as long."""
NS_PER_US = 1000


@dataclass(frozen=True, eq=False)
class DirectExchange:
    """An all-to-allv in steps that wait for each other.

    `name`: A key of `BASELINES`.
    `traffic` (int64 (ranks, ranks)): Bytes from each rank to each.
    `servers`, `gpus_per_server`: Rank r is GPU ``r % gpus_per_server`` of server ``r // gpus_per_server``.
    `sends` (int64 (sends, 4)): Step, source, destination, bytes.
    """

    name: str
    traffic: IntArray
    servers: int
    gpus_per_server: int
    sends: IntArray

    @property
    def num_stages(self) -> int:
        """Number of steps."""
        return int(self.sends[:, 0].max(initial=-1)) + 1

    def completion_time(self, model: TwoTierModel, *, incast_loss: Exact = INCAST_LOSS) -> Fraction:
        """Add up the steps' times in µs.

        A step takes a wake-up and as long as its busiest GPU needs for what it sends or receives on either tier.  Where
        f > 1 flows from other servers meet at a GPU, it receives as slowly as if they had
        ``1 + incast_loss * (f - 1)`` times as many bytes.
        """
        check_model(model)
        loss = as_amount(incast_loss)
        wake_up = Fraction(model.wake_up) * NS_PER_US
        per_up, per_out = 1 / Fraction(model.scale_up), 1 / Fraction(model.scale_out)
        unit = lcm(per_up.denominator, per_out.denominator) * loss.denominator
        ranks, steps = len(self.traffic), self.num_stages
        step, source, destination, length = self.sends.T
        outside = source // self.gpus_per_server != destination // self.gpus_per_server
        flows = np.zeros(steps * ranks, dtype=np.int64)
        np.add.at(flows, (step * ranks + destination)[outside], 1)
        slower = 1 + loss * max(0, int(flows.max(initial=0)) - 1)
        most = int(length.sum()) * unit * max(per_up, per_out) * slower
        if most >= 2**62:
            raise CapacityOverflowError(
                f"times of up to {int(most)} units do not fit 64 bits; expected rounder numbers"
            )
        busiest = np.zeros(steps * ranks, dtype=np.int64)
        for tier, per_byte in ((outside, per_out), (~outside, per_up)):
            for end in (source, destination):
                loads = np.zeros_like(busiest)
                np.add.at(loads, (step * ranks + end)[tier], length[tier] * int(per_byte * unit))
                if end is destination and tier is outside:
                    loads += loads // loss.denominator * loss.numerator * np.maximum(flows - 1, 0)
                np.maximum(busiest, loads, out=busiest)
        total = Fraction(sum(busiest.reshape(steps, ranks).max(axis=1, initial=0).tolist()), unit)
        return (total + wake_up * steps) / NS_PER_US

    def to_frame(self) -> pd.DataFrame:
        """List all sends, with columns ``phase``, ``stage``, ``source``, ``destination`` and ``bytes``."""
        import pandas as pd

        frame = pd.DataFrame(self.sends, columns=["stage", "source", "destination", "bytes"])
        frame.insert(0, "phase", self.name)
        return frame

    def verify(self) -> None:
        """Check that all bytes but copies to self are sent; `CertificateError` if not."""
        sent = np.diag(np.diag(self.traffic))
        np.add.at(sent, (self.sends[:, 1], self.sends[:, 2]), self.sends[:, 3])
        if not np.array_equal(sent, self.traffic):
            source, destination = (int(place) for place in np.argwhere(sent != self.traffic)[0])
            raise CertificateError(
                f"{sent[source, destination]} bytes are sent from rank {source} to {destination}; "
                f"expected {self.traffic[source, destination]}"
            )


def spread_out(traffic: npt.ArrayLike | pd.DataFrame, *, servers: int, gpus_per_server: int) -> DirectExchange:
    """MPI's SpreadOut: in step k each rank sends to the k-th one after it; parameters as for `schedule_all_to_allv`."""
    matrix, n, m = as_traffic(traffic, servers, gpus_per_server)
    source, destination = _others(matrix)
    steps = (destination - source) % len(matrix) - 1
    sends = np.stack([steps, source, destination, matrix[source, destination]], axis=1)
    return DirectExchange("spread-out", matrix, n, m, read_only(sends))


def at_once(traffic: npt.ArrayLike | pd.DataFrame, *, servers: int, gpus_per_server: int) -> DirectExchange:
    """Everything in one step, as libraries without schedules do; parameters as for `schedule_all_to_allv`."""
    matrix, n, m = as_traffic(traffic, servers, gpus_per_server)
    source, destination = _others(matrix)
    sends = np.stack([np.zeros_like(source), source, destination, matrix[source, destination]], axis=1)
    return DirectExchange("at-once", matrix, n, m, read_only(sends))


def unbalanced_birkhoff(traffic: npt.ArrayLike | pd.DataFrame, *, servers: int, gpus_per_server: int) -> DirectExchange:
    """Birkhoff's decomposition among all GPUs, without balancing: FAST, section 3.

    What stays inside servers goes in the first step.  Parameters as for `schedule_all_to_allv`.
    """
    from collopt.solvers.fast.birkhoff import decompose

    matrix, n, m = as_traffic(traffic, servers, gpus_per_server)
    source, destination = _others(matrix)
    inside = source // m == destination // m
    local = np.stack([np.zeros_like(source), source, destination, matrix[source, destination]], axis=1)[inside]
    left = matrix.copy()
    server = np.arange(len(matrix)) // m
    left[server[:, None] == server] = 0
    ranks = np.arange(len(matrix))
    sends = [local]
    for step, (permutation, weight) in enumerate(zip(*decompose(left), strict=True)):
        sent = np.minimum(left[ranks, permutation], weight)
        left[ranks, permutation] -= sent
        sends.append(np.stack([np.full_like(ranks, step), ranks, permutation, sent], axis=1)[sent > 0])
    return DirectExchange("birkhoff", matrix, n, m, read_only(np.concatenate(sends)))


def _others(matrix: IntArray) -> tuple[IntArray, IntArray]:
    source, destination = np.nonzero(matrix)
    apart = source != destination
    return source[apart], destination[apart]


BASELINES: dict[str, Callable[..., DirectExchange]] = {
    "spread-out": spread_out,
    "at-once": at_once,
    "birkhoff": unbalanced_birkhoff,
}
"""By name; all take what `schedule_all_to_allv` takes, but for its options."""
