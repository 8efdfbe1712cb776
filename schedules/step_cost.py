"""What a schedule in steps costs, in the two figures that direct-connect topologies are chosen by."""

from __future__ import annotations

from fractions import Fraction
from typing import NamedTuple

from ..topologies import DirectGraph
from .step_allreduce import AnyStepSchedule

__all__ = ["StepCost", "step_cost"]

NS_PER_US = 1000


class StepCost(NamedTuple):
    """T_L and T_B of a schedule for one topology (direct-connect paper, section 3.2).

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

    steps: int
    bandwidth_factor: Fraction

    def runtime(self, num_bytes: int, *, alpha: object, node_bandwidth: object) -> Fraction:
        """Time of the schedule by the alpha-beta model, in µs.

        Parameters
        ----------
        num_bytes : int
            M: bytes in all.
        alpha : number
            µs per step, as `Fraction` reads it.
        node_bandwidth : number
            B: GB/s of all ports of a node together, self-loops included, as `Fraction` reads it.

        Returns
        -------
        Fraction
        """
        transfer = self.bandwidth_factor * num_bytes / (Fraction(str(node_bandwidth)) * NS_PER_US)
        return self.steps * Fraction(str(alpha)) + transfer


def step_cost(graph: DirectGraph, schedule: AnyStepSchedule) -> StepCost:
    """Work out T_L and T_B of a schedule from what it puts on the links.

    Parameters
    ----------
    graph : DirectGraph
        Regular; what the schedule is for.
    schedule : StepSchedule or StepAllreduce
        Not checked; see `collopt.schedules.verified_step_schedule_loads`.

    Returns
    -------
    StepCost

    Raises
    ------
    UnsupportedError
        If the graph is not regular.
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
    factor = Fraction(graph.degree, graph.num_nodes) * schedule.inverse_rate(graph.topology())
    return StepCost(schedule.num_steps, factor)
