"""Cost of schedules in steps: T_L and T_B of the direct-connect paper, and the alpha-beta run time."""

from fractions import Fraction
from typing import NamedTuple

from ...support.quantities import Exact, as_bytes, as_factor, as_latency
from ...topologies import DirectGraph, Topology
from ...topologies.network.direct_graph import as_direct_graph
from .allreduce import AnyStepSchedule, check_fit

NS_PER_US = 1000


class StepCost(NamedTuple):
    """T_L, `steps` in multiples of alpha, and T_B, `bandwidth_factor` in multiples of M/B, of a schedule on a topology.

    Direct-connect paper, section 3.2, with M bytes in all and a total bandwidth B of each node's d ports.  A tuple, so
    that costs can be compared, sorted and taken apart.

    Examples
    --------
    The optimum of 1024 nodes with 4 ports each of 25 Gb/s, as in Table 4, for an allreduce of 1 MiB:

    >>> float(2 * StepCost(5, Fraction(1023, 1024)).runtime(2**20, alpha=10, node_bandwidth="12.5")).__round__(1)
    267.6
    """

    steps: int
    bandwidth_factor: Fraction

    def runtime(self, num_bytes: int | str, *, alpha: Exact, node_bandwidth: Exact) -> Fraction:
        """Time of the schedule by the alpha-beta model, in µs, for M bytes in all, such as ``"1M"``.

        `alpha` is µs per step; `node_bandwidth` is B, GB/s of all ports of a node together, self-loops included.
        """
        delay, speed = as_latency(alpha, "a step"), as_factor(node_bandwidth, "node_bandwidth")
        return self.steps * delay + self.bandwidth_factor * as_bytes(num_bytes) / (speed * NS_PER_US)


def step_cost(graph: DirectGraph, schedule: AnyStepSchedule) -> StepCost:
    """Compute T_L and T_B of a schedule from its link loads.

    Raises `UnsupportedError` if the graph is not regular, or the schedule is for another number of ranks;
    `CertificateError` if the schedule uses a link that the graph does not have.

    Parameters
    ----------
    graph : DirectGraph
        Regular; the network of the schedule.
    schedule : StepSchedule or StepAllreduce
        For as many ranks; not checked otherwise, see `collopt.schedules.verified_loads`.

    Examples
    --------
    >>> from collopt.schedules import StepSchedule
    >>> pair = DirectGraph.from_arcs(2, [(0, 1), (1, 0)], "K(2)")
    >>> exchange = StepSchedule.from_sends(2, 1, [(0, 0, 0, 1, (0, 1)), (0, 1, 0, 1, (1, 0))])
    >>> step_cost(pair, exchange)
    StepCost(steps=1, bandwidth_factor=Fraction(1, 2))
    """
    check_fit(schedule, as_direct_graph(graph))
    factor = Fraction(graph.degree, graph.num_nodes) * schedule.inverse_rate(Topology.from_graph(graph))
    return StepCost(schedule.num_steps, factor)
