"""All-to-allv schedules to compare FAST with: straight from origin to final GPU, over one proxy, or padded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from math import lcm
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt

from collopt.errors import CapacityOverflowError, CertificateError
from collopt.planners.all_to_all.fast import as_traffic
from collopt.schedules.stages.two_tier_cost import TwoTierModel, check_model
from collopt.support.arrays import read_only
from collopt.support.quantities import Exact, as_amount

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "BASELINES",
    "ProxyExchange",
    "at_once",
    "hierarchical",
    "padded",
    "pxn",
    "spread_out",
    "two_hop",
    "unbalanced_birkhoff",
]

IntArray = npt.NDArray[np.int64]
Traffic: TypeAlias = "npt.ArrayLike | pd.DataFrame"

INCAST_LOSS = Fraction(1, 20)
"""An assumption, not a measurement: FAST's section 5.1.1 finds RCCL's exchange between 1.1 and 10 times as long."""
NS_PER_US = 1000


@dataclass(frozen=True, eq=False)
class ProxyExchange:
    """An all-to-allv in steps that wait for each other, in which bytes may pass one proxy on their way.

    `name`: A key of `BASELINES`.
    `traffic` (int64 (ranks, ranks)): Bytes from each rank to each.
    `servers`, `gpus_per_server`: Rank r is GPU ``r % gpus_per_server`` of server ``r // gpus_per_server``.
    `moves` (int64 (moves, 5)): Step, origin, proxy, final rank, bytes; the final rank itself where there is no proxy.
    `hop_steps`: Steps from a move's first hop to its second; 0 if proxies pass on what arrives in the same step.
    """

    name: str
    traffic: IntArray
    servers: int
    gpus_per_server: int
    moves: IntArray
    hop_steps: int = 0

    @cached_property
    def hops(self) -> IntArray:
        """Step, source, destination and bytes of each hop of a move."""
        step, origin, proxy, final, length = self.moves.T
        first = np.stack([step, origin, proxy, length], axis=1)
        second = np.stack([step + self.hop_steps, proxy, final, length], axis=1)
        hops = np.concatenate([first, second])
        return hops[hops[:, 1] != hops[:, 2]]

    @property
    def num_stages(self) -> int:
        """Number of steps."""
        return int(self.hops[:, 0].max(initial=-1)) + 1

    def completion_time(self, model: TwoTierModel, *, incast_loss: Exact = INCAST_LOSS) -> Fraction:
        """Add up the steps' times in µs.

        A step takes a wake-up and as long as its busiest GPU needs for what it sends or receives on either tier.  Where
        f > 1 GPUs of other servers send to one, it receives as slowly as if they had ``1 + incast_loss * (f - 1)``
        times as many bytes.
        """
        check_model(model)
        loss = as_amount(incast_loss)
        wake_up = Fraction(model.wake_up) * NS_PER_US
        per_up, per_out = 1 / Fraction(model.scale_up), 1 / Fraction(model.scale_out)
        unit = lcm(per_up.denominator, per_out.denominator) * loss.denominator
        ranks, steps = len(self.traffic), self.num_stages
        step, source, destination, length = self.hops.T
        outside = source // self.gpus_per_server != destination // self.gpus_per_server
        senders = np.unique(self.hops[outside, :3], axis=0)
        flows = np.zeros(steps * ranks, dtype=np.int64)
        np.add.at(flows, senders[:, 0] * ranks + senders[:, 2], 1)
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
        """List all hops, with columns ``phase``, ``stage``, ``source``, ``destination`` and ``bytes``."""
        import pandas as pd

        frame = pd.DataFrame(self.hops, columns=["stage", "source", "destination", "bytes"])
        frame.insert(0, "phase", self.name)
        return frame

    def verify(self) -> None:
        """Check that all bytes but copies to self arrive; `CertificateError` if not."""
        sent = np.diag(np.diag(self.traffic))
        np.add.at(sent, (self.moves[:, 1], self.moves[:, 3]), self.moves[:, 4])
        if not np.array_equal(sent, self.traffic):
            source, destination = (int(place) for place in np.argwhere(sent != self.traffic)[0])
            raise CertificateError(
                f"{sent[source, destination]} bytes are sent from rank {source} to {destination}; "
                f"expected {self.traffic[source, destination]}"
            )


def spread_out(traffic: Traffic, *, servers: int, gpus_per_server: int) -> ProxyExchange:
    """MPI's SpreadOut: in step k each rank sends to the k-th one after it; parameters as for `schedule_all_to_allv`."""
    matrix, n, m = as_traffic(traffic, servers, gpus_per_server)
    source, destination = _others(matrix)
    steps = (destination - source) % len(matrix) - 1
    return _exchange("spread-out", matrix, n, m, steps, source, destination, destination)


def at_once(traffic: Traffic, *, servers: int, gpus_per_server: int) -> ProxyExchange:
    """Everything in one step, as libraries without schedules do; parameters as for `schedule_all_to_allv`."""
    matrix, n, m = as_traffic(traffic, servers, gpus_per_server)
    source, destination = _others(matrix)
    return _exchange("at-once", matrix, n, m, np.zeros_like(source), source, destination, destination)


def pxn(traffic: Traffic, *, servers: int, gpus_per_server: int) -> ProxyExchange:
    """NCCL's PXN: the GPU of the origin's server with the final GPU's number sends for all of its server.

    Proxies pass on in the same step.  Parameters as for `schedule_all_to_allv`.
    """
    matrix, n, m = as_traffic(traffic, servers, gpus_per_server)
    source, destination = _others(matrix)
    proxy = np.where(source // m == destination // m, destination, source // m * m + destination % m)
    return _exchange("pxn", matrix, n, m, np.zeros_like(source), source, proxy, destination)


def two_hop(traffic: Traffic, *, servers: int, gpus_per_server: int) -> ProxyExchange:
    """DeepEP's two hops: the GPU of the final GPU's server with the origin's number receives and passes on.

    In the same step.  Parameters as for `schedule_all_to_allv`.
    """
    matrix, n, m = as_traffic(traffic, servers, gpus_per_server)
    source, destination = _others(matrix)
    proxy = np.where(source // m == destination // m, destination, destination // m * m + source % m)
    return _exchange("two-hop", matrix, n, m, np.zeros_like(source), source, proxy, destination)


def hierarchical(traffic: Traffic, *, servers: int, gpus_per_server: int) -> ProxyExchange:
    """The hierarchical all-to-all: as `pxn`, but the exchange between servers waits for that inside them."""
    return replace(pxn(traffic, servers=servers, gpus_per_server=gpus_per_server), name="hierarchical", hop_steps=1)


def padded(traffic: Traffic, *, servers: int, gpus_per_server: int) -> ProxyExchange:
    """An optimal all-to-all of parts as large as the largest, as planners for even traffic have to be used (TACCL).

    The traffic is that of the parts with their padding.  Parameters as for `schedule_all_to_allv`.
    """
    matrix, n, m = as_traffic(traffic, servers, gpus_per_server)
    most = np.full_like(matrix, matrix.max(initial=0))
    return replace(unbalanced_birkhoff(most, servers=n, gpus_per_server=m), name="padded")


def unbalanced_birkhoff(traffic: Traffic, *, servers: int, gpus_per_server: int) -> ProxyExchange:
    """Birkhoff's decomposition among all GPUs, without balancing: FAST, section 3.

    What stays inside servers goes in the first step.  Parameters as for `schedule_all_to_allv`.
    """
    from collopt.solvers.steps.birkhoff import DECOMPOSITIONS, matchings

    matrix, n, m = as_traffic(traffic, servers, gpus_per_server)
    source, destination = _others(matrix)
    inside = source // m == destination // m
    local = np.stack([np.zeros_like(source), source, destination, matrix[source, destination]], axis=1)[inside]
    left = matrix.copy()
    server = np.arange(len(matrix)) // m
    left[server[:, None] == server] = 0
    ranks = np.arange(len(matrix))
    sends = [local]
    for step, (permutation, weight) in enumerate(zip(*matchings(left, DECOMPOSITIONS["plain"]), strict=True)):
        sent = np.minimum(left[ranks, permutation], weight)
        left[ranks, permutation] -= sent
        sends.append(np.stack([np.full_like(ranks, step), ranks, permutation, sent], axis=1)[sent > 0])
    moves = np.concatenate(sends)[:, [0, 1, 2, 2, 3]]
    return ProxyExchange("birkhoff", matrix, n, m, read_only(moves))


def _others(matrix: IntArray) -> tuple[IntArray, IntArray]:
    source, destination = np.nonzero(matrix)
    apart = source != destination
    return source[apart], destination[apart]


def _exchange(name: str, matrix: IntArray, n: int, m: int, *columns: IntArray) -> ProxyExchange:
    """Move whole cells; `columns` are the steps, origins, proxies and final ranks."""
    _, source, _, destination = columns
    moves = np.stack([*columns, matrix[source, destination]], axis=1)
    return ProxyExchange(name, matrix, n, m, read_only(moves))


BASELINES: dict[str, Callable[..., ProxyExchange]] = {
    "spread-out": spread_out,
    "at-once": at_once,
    "birkhoff": unbalanced_birkhoff,
    "pxn": pxn,
    "two-hop": two_hop,
    "hierarchical": hierarchical,
    "padded": padded,
}
"""By name; all take what `schedule_all_to_allv` takes, but for its options."""
