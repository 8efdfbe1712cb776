"""Simulated times of plans, with all events."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
import numpy.typing as npt

from ...errors import UnsupportedError
from ...planners import Plan
from ...schedules import Collective, as_bytes
from ...schedules.message_order import Clock, PieceTimes
from ...schedules.timed_run import Forwarding, Rules, Service, TimedSchedule, Waiting
from ...schedules.transfers import Transfers
from ...support.arrays import IntArray
from ...support.formatting import bandwidth_text, time_text
from ...support.validation import as_kind
from ...topologies import LINKS_ONLY, RuntimeCosts, Topology
from ...topologies.network.link_costs import CostsName, as_costs
from ..programs.program import check_choice

if TYPE_CHECKING:
    import pandas as pd


NS_PER_US = 1000


def simulate(
    plan: Plan,
    size: int | str,
    slices: int | None = None,
    *,
    costs: RuntimeCosts | CostsName | None = None,
    steps: Waiting = "overlap",
    forwarding: Forwarding = "cut-through",
    service: Service = "pipeline",
    clock: Clock = "exact",
) -> Simulation:
    """Simulate a plan on its topology, event by event.

    Equal arguments give equal results.  Raises `UnsupportedError` if an argument is not understood, does not suit the
    plan, or makes for more than 2^26 events; `CertificateError` if the schedule uses links that its topology lacks, or
    its transfers wait for each other in a cycle.

    Parameters
    ----------
    plan : Plan
        With any schedule.
    size : int or str
        Bytes in all, as nccl-tests counts them, such as ``2**30`` or ``"1G"``.
    slices : int, optional
        Pieces that the data of each tree or path is cut into.  By default 64, or fewer for plans of very many transfers
        and where starting a message costs something: W / (E o) for a busiest link that is busy for W and E messages of
        o that a rank starts for each slice.  None for a schedule in steps, whose chunks are its
        pieces.
    costs : RuntimeCosts or {"links", "generic", "fused"}, optional
        What the software adds; those of the topology by default, or none if it states none.  Names are guesses: see
        `collopt.topologies.guessed_costs`.
    steps : {"overlap", "wait"}
        Whether a step's data is sent when it is there, or when all of the step before has come.
    forwarding : {"cut-through", "store-and-forward"}
        Whether switches pass a piece on while it arrives, or when all of it has come.
    service : {"pipeline", "arrival"}
        Whether switches, too, send the piece whose data has the farthest to go, as ranks do, or the one that came
        first.
    clock : {"exact", "ns"}
        Whether times on links are exact, or rounded down to whole ns, as in simulators that count in these.

    Examples
    --------
    Three ranks in a row; the second passes on each of two halves of 12 kB, 0.24 µs each, when it has come:

    >>> import collopt
    >>> row = collopt.Topology.from_links(
    ...     [("a", "b", 25, 1), ("b", "c", 25, 1)], compute="abc", bidirectional=True, name="row"
    ... )
    >>> plan = collopt.plan(row, "broadcast", root="a")
    >>> simulate(plan, 12_000, slices=2)
    <Simulation: broadcast of 12000 bytes on row, 2 slices: 2.72 µs, 4.41 GB/s>
    """
    timed = _timed(plan, costs, steps=steps, forwarding=forwarding, service=service, clock=clock)
    num_bytes = as_bytes(size)
    run = timed.run(num_bytes, slices)
    return Simulation(
        plan.topology,
        plan.collective,
        num_bytes,
        run.slices,
        run.time,
        run.transfers,
        run.times,
        run.starts,
        plan.busbw / plan.algbw,
        timed.rules.costs,
    )


@wraps(simulate, assigned=())
def simulated_time(*arguments: Any, **options: Any) -> float:
    """Return the time of `simulate` in µs; called by `Plan.simulate`, which checks options by the signature."""
    return simulate(*arguments, **options).microseconds


def _timed(plan: Plan, costs: RuntimeCosts | CostsName | None, **rules: Any) -> TimedSchedule:
    """Check a plan and the rules of its simulation, and list its transfers."""
    as_kind(plan, Plan, "the plan")
    for name, kind in (("steps", Waiting), ("forwarding", Forwarding), ("service", Service), ("clock", Clock)):
        check_choice(name, rules[name], get_args(kind))
    if rules["steps"] == "wait" and not plan.schedule.num_steps:
        raise UnsupportedError(
            f"steps is 'wait', but the plan consists of {plan.schedule.parts}, which have none; leave steps out"
        )
    return TimedSchedule(plan.schedule, plan.topology, Rules(as_costs(costs, plan.topology), **rules))


@dataclass(frozen=True, eq=False, repr=False)
class Simulation:
    """Result of a simulation, with all its events.

    Attributes
    ----------
    topology : Topology
    collective : Collective
    num_bytes : int
        As nccl-tests counts them.
    slices : int
        Pieces that each transfer was cut into.
    time : Fraction
        µs until the last byte came.
    transfers : Transfers
    times : PieceTimes
        Of one piece on each hop.
    starts : ndarray of int64, shape (hops, slices)
        When each piece began to enter the link, in ticks.
    bus_factor : Fraction
        `busbw` divided by `algbw`.
    costs : RuntimeCosts
        Of the software.
    """

    topology: Topology
    collective: Collective
    num_bytes: int
    slices: int
    time: Fraction
    transfers: Transfers
    times: PieceTimes
    starts: IntArray
    bus_factor: Fraction
    costs: RuntimeCosts = LINKS_ONLY

    @property
    def microseconds(self) -> float:
        """Time until the last byte arrived."""
        return float(self.time)

    @property
    def algbw(self) -> float:
        """Algorithm bandwidth in GB/s as in nccl-tests: bytes over time."""
        return float(self.num_bytes / (self.time * NS_PER_US))

    @property
    def busbw(self) -> float:
        """Bus bandwidth in GB/s as in nccl-tests; see `collopt.schedules.bus_factor`."""
        return self.algbw * float(self.bus_factor)

    @property
    def link_busy(self) -> pd.DataFrame:
        """One row per link: ``tail``, ``head``, ``bytes``, ``pieces``, ``busy_us``, and ``share`` of the whole time."""
        import pandas as pd

        total = partial(np.bincount, self.transfers.hop_links, minlength=self.topology.num_links)
        busy = total(self._microseconds(self.times.ticks * self.slices))
        return pd.DataFrame(
            {
                "tail": [link.tail for link in self.topology.links],
                "head": [link.head for link in self.topology.links],
                "bytes": total(self._bytes[self.transfers.hop_owners] * self.slices),
                "pieces": total() * self.slices,
                "busy_us": busy,
                "share": busy / self.microseconds,
            }
        )

    def to_frame(self) -> pd.DataFrame:
        """Tabulate the events.

        One row for each piece that entered a link, by time: ``start_us`` and ``end_us``, between which it kept the link
        busy; the link's ``tail`` and ``head``; ``sender`` and ``receiver``, the ranks between which it is on its way;
        the number of the ``transfer`` and of the ``slice``; ``bytes``.
        """
        import pandas as pd

        hops = np.repeat(np.arange(len(self.starts)), self.slices)
        owners = self.transfers.hop_owners[hops]
        starts = self.starts.ravel()
        links, names = self.transfers.hop_links[hops], np.array(self.topology.nodes, dtype=object)
        frame = pd.DataFrame(
            {
                "start_us": self._microseconds(starts),
                "end_us": self._microseconds(starts + self.times.ticks[hops]),
                "tail": names[self.topology.arrays.tails[links]],
                "head": names[self.topology.arrays.heads[links]],
                "sender": names[self.transfers.senders[owners]],
                "receiver": names[self.transfers.receivers[owners]],
                "transfer": owners,
                "slice": np.tile(np.arange(self.slices), len(self.starts)),
                "bytes": self._bytes[owners],
            }
        )
        order = np.lexsort((frame["slice"], frame["transfer"], links, starts))
        return frame.iloc[order].reset_index(drop=True)

    @property
    def _bytes(self) -> npt.NDArray[np.float64]:
        """Bytes of one piece of each transfer."""
        return self.transfers.amounts.astype(np.float64) * float(self.num_bytes * self.transfers.unit / self.slices)

    def _microseconds(self, ticks: IntArray) -> npt.NDArray[np.float64]:
        return ticks.astype(np.float64) * float(self.times.tick)

    def __repr__(self) -> str:
        """One line in angle brackets."""
        costs = "" if self.costs == LINKS_ONLY else f" ({self.costs.label})"
        return (
            f"<Simulation: {self.collective} of {self.num_bytes} bytes on {self.topology.name}, {self.slices} slices: "
            f"{time_text(self.time)}, {bandwidth_text(self.algbw)}{costs}>"
        )
