"""What a schedule in steps costs, in the two figures that direct-connect topologies are chosen by."""

from __future__ import annotations

from fractions import Fraction
from typing import NamedTuple, Self

from ...errors import UnsupportedError
from ...support.sizes import as_bytes
from ...support.validation import Exact, as_factor, as_latency, is_int, is_whole, shown
from ...topologies import DirectGraph
from ...topologies.network.direct_graph import as_direct_graph
from .allreduce import AnyStepSchedule, check_fit

__all__ = ["StepCost", "step_cost"]

NS_PER_US = 1000


class _Figures(NamedTuple):
    steps: int
    bandwidth_factor: Fraction


class StepCost(_Figures):
    """T_L and T_B of a schedule for one topology (direct-connect paper, section 3.2).

    A tuple, so that costs can be compared, sorted and taken apart.  What is no number of at least 0, or not exact,
    raises `UnsupportedError`.

    Attributes
    ----------
    steps : int
        Communication steps: T_L in multiples of alpha.
    bandwidth_factor : Fraction
        T_B in multiples of M/B, with M bytes in all and a total bandwidth B of each node's d ports.

    Examples
    --------
    The optimum of 1024 nodes with 4 ports each of 25 Gb/s, as in Table 4, for an allreduce of 1 MiB:

    >>> float(2 * StepCost(5, Fraction(1023, 1024)).runtime(2**20, alpha=10, node_bandwidth="12.5")).__round__(1)
    267.6
    """

    __slots__ = ()

    def __new__(cls, steps: int, bandwidth_factor: Fraction | int) -> Self:
        """Check both, and make them Python's own numbers."""
        if not is_whole(steps) or steps < 0:
            raise UnsupportedError(f"the steps of the cost are {shown(steps)}; expected a whole number of at least 0")
        if not _is_exact(bandwidth_factor) or bandwidth_factor.numerator < 0:
            raise UnsupportedError(
                f"the bandwidth factor of the cost is {shown(bandwidth_factor)}; expected a Fraction of at least 0"
            )
        exact = bandwidth_factor if isinstance(bandwidth_factor, Fraction) else Fraction(bandwidth_factor)
        return super().__new__(cls, int(steps), exact)

    def runtime(self, num_bytes: int | str, *, alpha: Exact, node_bandwidth: Exact) -> Fraction:
        """Time of the schedule by the alpha-beta model, in µs.

        Parameters
        ----------
        num_bytes : int or str
            M: bytes in all, such as ``"1M"``.
        alpha : int, float, str or Fraction
            µs per step.
        node_bandwidth : int, float, str or Fraction
            B: GB/s of all ports of a node together, self-loops included.

        Returns
        -------
        Fraction

        Raises
        ------
        UnsupportedError
            If the bytes are not a positive whole number.
        TopologyError
            If another value is not usable.
        """
        delay, speed = as_latency(alpha, "a step"), as_factor(node_bandwidth, "node_bandwidth")
        return self.steps * delay + self.bandwidth_factor * as_bytes(num_bytes) / (speed * NS_PER_US)


def _is_exact(value: object) -> bool:
    """Whether it is a fraction or a whole number; most are fractions."""
    return isinstance(value, Fraction) or is_int(value)


def step_cost(graph: DirectGraph, schedule: AnyStepSchedule) -> StepCost:
    """Work out T_L and T_B of a schedule from what it puts on the links.

    Parameters
    ----------
    graph : DirectGraph
        Regular; what the schedule is for.
    schedule : StepSchedule or StepAllreduce
        For as many ranks; not checked otherwise, see `collopt.schedules.verified_step_schedule_loads`.

    Returns
    -------
    StepCost

    Raises
    ------
    UnsupportedError
        If the graph is not regular, or the schedule is for another number of ranks.
    CertificateError
        If the schedule uses a link that the graph does not have.

    Examples
    --------
    >>> from collopt.schedules import StepSchedule
    >>> pair = DirectGraph.from_arcs(2, [(0, 1), (1, 0)], "K(2)")
    >>> exchange = StepSchedule.from_sends(2, 1, [(0, 0, 0, 1, (0, 1)), (0, 1, 0, 1, (1, 0))])
    >>> step_cost(pair, exchange)
    StepCost(steps=1, bandwidth_factor=Fraction(1, 2))
    """
    check_fit(schedule, as_direct_graph(graph))
    factor = Fraction(graph.degree, graph.num_nodes) * schedule.inverse_rate(graph.topology())
    return StepCost(schedule.num_steps, factor)
