"""What a plan takes, event by event: links that are busy, latencies, ranks that wait for data and for sums.

The model.  A link carries one piece at a time, at its bandwidth, and every bit arrives its latency later.  A rank sends
a piece on when all of it has come, and a sum when all parts of it have; adding takes no time.  A switch passes a piece
on while it comes in, and keeps what has to wait for a busy link.  All data of a tree, or of a path of a flow, is cut
into equally many slices, which follow each other.  Of pieces that wait for a link, the one goes first that a pipeline
without any stop would have taken first; see `collopt.runtime.simulation.event_loop`.

Steps need not be waited for: in a real run a rank sends over each link in the order of steps, as soon as it has what it
is to send next.  With ``steps="wait"`` nothing of a step begins before all of the step before has come, which is what
`Plan.estimate` assumes.

So no link is busy for less than its load over its bandwidth, and no plan is faster than its bound.  With ever more
slices, and without latencies, the time comes down towards that of `Plan.estimate`.
"""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from typing import TYPE_CHECKING, Literal

import numpy as np

from ...errors import CertificateError, UnsupportedError
from ...planners import Plan
from ...schedules import as_bytes
from ...support.arrays import IntArray
from ...support.validation import as_whole, shown
from ..programs.checks import check_choice
from .result import Simulation
from .transfers import PieceTimes, Transfers, piece_times, with_gates
from .tree_transfers import transfers_of

if TYPE_CHECKING:
    import pandas as pd

Waiting = Literal["overlap", "wait"]

DEFAULT_SLICES = 64
MOST_EVENTS = 2**26
"""About 3 GB while the simulation runs."""


def simulate(plan: Plan, size: int | str, slices: int | None = None, *, steps: Waiting = "overlap") -> Simulation:
    """Run a plan on its topology, event by event.

    Parameters
    ----------
    plan : Plan
        With any schedule.
    size : int or str
        Bytes in all, as nccl-tests counts them, such as ``2**30`` or ``"1G"``.
    slices : int, optional
        Pieces that the data of each tree or path is cut into; 64 by default, or fewer for plans of very many transfers.
        A schedule in steps takes none, for its chunks are its pieces.
    steps : {"overlap", "wait"}
        Whether what is sent in a step begins when its data is there, or when all of the step before has come.

    Returns
    -------
    Simulation
        Equal for equal arguments.

    Raises
    ------
    UnsupportedError
        If an argument is not understood, does not suit the plan, or makes for more than 2^26 events.
    CertificateError
        If the schedule uses links that its topology lacks, or its transfers wait for each other in a cycle.

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
    return _Simulator(plan, steps).run(size, slices)


def simulated_time(plan: Plan, size: int | str, slices: int | None = None, *, steps: Waiting = "overlap") -> float:
    """Return the µs of `simulate`, whose parameters and errors these are; what `Plan.simulate` calls."""
    return simulate(plan, size, slices, steps=steps).microseconds


def simulate_sizes(
    plan: Plan, sizes: Iterable[int | str], slices: int | None = None, *, steps: Waiting = "overlap"
) -> pd.DataFrame:
    """Run a plan with several amounts of data.

    Parameters
    ----------
    plan : Plan
        As for `simulate`.
    sizes : iterable of int or str
        Each as for `simulate`.
    slices : int or None
        As for `simulate`.
    steps : {"overlap", "wait"}
        Likewise.

    Returns
    -------
    DataFrame
        One row per size, named as by nccl-tests: ``size`` in bytes, ``time_us``, ``algbw`` and ``busbw`` in GB/s.

    Examples
    --------
    >>> import collopt
    >>> plan = collopt.plan(collopt.topologies.ring(4, bandwidth=25, latency=1), "allgather")
    >>> print(simulate_sizes(plan, ["64K", "64M"], slices=1).round(2).to_string(index=False))
        size  time_us  algbw  busbw
       65536     2.98  21.97  16.48
    67108864  1008.63  66.53  49.90
    """
    import pandas as pd

    if isinstance(sizes, str) or not isinstance(sizes, Iterable):
        raise UnsupportedError(f"the sizes are {shown(sizes)}; expected several, such as ['1M', '1G']")
    simulator = _Simulator(plan, steps)
    runs = [simulator.run(size, slices) for size in sizes]
    rows = [(run.num_bytes, run.microseconds, run.algbw, run.busbw) for run in runs]
    return pd.DataFrame(rows, columns=["size", "time_us", "algbw", "busbw"])


class _Simulator:
    """A plan whose transfers are known, to be run with one size after the other."""

    def __init__(self, plan: Plan, steps: Waiting) -> None:
        if not isinstance(plan, Plan):
            raise UnsupportedError(f"the plan is {shown(plan)}; expected a Plan")
        check_choice("steps", steps, ("overlap", "wait"))
        if steps == "wait" and not plan.schedule.num_steps:
            raise UnsupportedError(
                f"steps is 'wait', but the plan consists of {plan.schedule.parts}, which have none; leave steps out"
            )
        self._plan = plan
        self._steps = steps
        transfers = transfers_of(plan.schedule, plan.topology)
        # Steps that are waited for keep their order by themselves.
        self._transfers = transfers if plan.schedule.pipelined or steps == "wait" else with_gates(transfers)

    def run(self, size: int | str, slices: int | None) -> Simulation:
        """Run with so many bytes."""
        plan, transfers, num_bytes = self._plan, self._transfers, as_bytes(size)
        count = self._slices(slices)
        times = piece_times(transfers, plan.topology, num_bytes, count)
        parts = [np.arange(len(transfers.senders))] if self._steps == "overlap" else _by_level(transfers)
        starts = np.empty((len(transfers.hop_links), count), dtype=np.int64)
        now = 0
        for part in parts:
            now = _run_part(transfers, times, part, count, len(plan.topology.links), now, starts)
        time = Fraction(now) * times.tick
        return Simulation(plan.topology, plan.collective, num_bytes, count, time, transfers, times, starts)

    def _slices(self, slices: int | None) -> int:
        """How many pieces to cut transfers into."""
        hops = len(self._transfers.hop_links)
        if slices is None:
            return max(1, min(DEFAULT_SLICES, MOST_EVENTS // hops)) if self._plan.schedule.pipelined else 1
        slices = as_whole(slices, "slices")
        if not self._plan.schedule.pipelined:
            raise UnsupportedError(f"slices is {slices}, but the plan's steps send chunks whole; leave slices out")
        if slices * hops > MOST_EVENTS:
            raise UnsupportedError(
                f"slices is {slices}, which makes {slices * hops} events; expected at most {MOST_EVENTS // hops}, "
                f"for {MOST_EVENTS} events"
            )
        return slices


def _by_level(transfers: Transfers) -> list[IntArray]:
    """Numbers of the transfers of each level."""
    order = np.argsort(transfers.levels, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(transfers.levels[order])) + 1)


def _run_part(
    transfers: Transfers, times: PieceTimes, part: IntArray, slices: int, links: int, now: int, starts: IntArray
) -> int:
    """Run some of the transfers from a time on, note when they start, and return when the last one ends."""
    from .event_loop import Network, run_events

    place = np.full(len(transfers.senders), -1, dtype=np.int64)
    place[part] = np.arange(len(part))
    lengths = np.diff(transfers.hop_starts)[part]
    hop_starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    hops = np.repeat(transfers.hop_starts[part] - hop_starts[:-1], lengths) + np.arange(hop_starts[-1])
    both = (place[transfers.before] >= 0) & (place[transfers.after] >= 0)
    network = Network(
        hop_starts,
        transfers.hop_links[hops],
        times.ticks[hops],
        times.delays[hops],
        transfers.levels[part],
        place[transfers.before[both]],
        place[transfers.after[both]],
        links,
    )
    timeline = run_events(network, slices)
    if timeline.unfinished:
        raise CertificateError(
            f"{timeline.unfinished} of {len(part) * slices} pieces never start, for transfers of the schedule wait for "
            "each other in a circle"
        )
    starts[hops] = timeline.starts + now
    return now + timeline.finish
