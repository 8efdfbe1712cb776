"""What is known of the best allreduce on a network, side by side: bounds for all algorithms, and what trees reach.

Printed for two boxes of GPUs: theorems of the pipeline paper's appendix B, LP (5) of ForestColl, and a best
reduce-scatter followed by a best allgather, all as algorithm bandwidth in GB/s.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

import numpy as np

from collopt.planners.trees.allreduce_lp import best_rates
from collopt.planners.trees.forestcoll import bound_trees
from collopt.planners.trees.strength import narrowest_cut, node_names
from collopt.schedules import ALLGATHER, ALLREDUCE, REDUCE_SCATTER, Bound, Cut, RankCuts
from collopt.solvers.flows.max_flow import max_flow
from collopt.topologies import Topology, dgx1_v100, mi250

__all__ = ["AllreduceBounds", "allreduce_bounds"]


@dataclass(frozen=True)
class AllreduceBounds:
    """Bounds on the algorithm bandwidth of an allreduce; theorems are those of the pipeline paper, appendix B.

    `any_cut`: All data must leave every cut: Theorem 16.
    `widest_rank`: Some rank sends, and some rank receives, ``2 (N - 1) / N`` of the data: Theorem 17 with all links of
        a rank, GB/s.  None where switches can add up data, since the theorem counts on ranks alone to do so.
    `rank_cuts`: The same with the narrowest cut around each rank: Corollary 18.
    `trees`: The best rate of in-trees and out-trees, GB/s: the optimum of LP (5) of ForestColl, appendix G.  Other
        algorithms may be faster.
    `reduce_scatter_allgather`: What a best reduce-scatter and a best allgather reach together, GB/s.
    """

    any_cut: Bound
    widest_rank: Fraction | None
    rank_cuts: Bound | None
    trees: Fraction
    reduce_scatter_allgather: Fraction

    @property
    def theorem_19(self) -> Literal["a", "b"] | None:
        """Condition of Theorem 19 under which reduce-scatter and allgather are a best allreduce; None if neither holds.

        Either condition says that the bottleneck cut of the allgather makes reduce-scatter and allgather together as
        fast as a bound: (a) that of Theorem 16, if half of the ranks are inside, and (b) that of Corollary 18, if all
        but one are.  Conversely, if the rates are equal, then a cut that gives such a bound, or its complement, is a
        bottleneck cut of that kind.  So rates are compared; where links come without opposites, equal ones prove the
        same though the theorem does not speak of them.
        """
        if self.reduce_scatter_allgather == self.any_cut.algbw:
            return "a"
        if self.rank_cuts is not None and self.reduce_scatter_allgather == self.rank_cuts.algbw:
            return "b"
        return None


def allreduce_bounds(topology: Topology) -> AllreduceBounds:
    """Compute the bounds on an allreduce, and what trees and reduce-scatter with allgather reach.

    Three ranks in a row: the ends need twice as much time for a reduce-scatter and an allgather as they have to.

    >>> path = Topology.from_links([("a", "b", 24), ("b", "c", 24)], compute="abc", bidirectional=True)
    >>> bounds = allreduce_bounds(path)
    >>> bounds.any_cut.algbw, bounds.rank_cuts.algbw, bounds.trees, bounds.reduce_scatter_allgather
    (Fraction(24, 1), Fraction(36, 1), Fraction(24, 1), Fraction(18, 1))
    >>> bounds.theorem_19 is None
    True
    """
    scattered, gathered = (bound_trees(topology, collective).algbw for collective in (REDUCE_SCATTER, ALLGATHER))
    adding = bool(topology.aggregation)
    return AllreduceBounds(
        Bound.from_witness(topology, ALLREDUCE, narrowest_cut(topology)),
        None if adding else _widest_rank(topology),
        None if adding else Bound.from_witness(topology, ALLREDUCE, _cuts_around(topology)),
        best_rates(topology).rate,
        1 / (1 / scattered + 1 / gathered),
    )


def _widest_rank(topology: Topology) -> Fraction:
    widest = max(topology.ingress(rank) for rank in topology.compute_nodes)
    if not topology.multicast:
        # Where switches copy, ranks need not send as much as others receive.
        widest = min(widest, max(topology.egress(rank) for rank in topology.compute_nodes))
    return widest * topology.num_ranks / (2 * (topology.num_ranks - 1))


def _cuts_around(topology: Topology) -> RankCuts:
    """Per rank the narrowest cut that holds it alone: a minimum cut towards all other ranks, joined in one sink."""
    tails, heads, capacities, _ = topology.arrays
    sink, ranks = len(topology.nodes), np.arange(topology.num_ranks)
    plenty = np.full(topology.num_ranks - 1, capacities.sum())
    cuts = []
    for rank in ranks:
        others = ranks[ranks != rank]
        ends = np.concatenate([tails, others]), np.concatenate([heads, np.full_like(others, sink)])
        side = max_flow(sink + 1, *ends, np.concatenate([capacities, plenty]), int(rank), sink).source_side
        cuts.append(Cut(node_names(topology, side[:sink])))
    return RankCuts(tuple(cuts))


def main() -> None:
    """Print the bounds for two boxes."""
    print(f"{'GB/s':12}  any cut  rank cuts    trees  reduce-scatter + allgather  Theorem 19")
    for name, topology in (("V100", dgx1_v100()), ("MI250", mi250())):
        bounds = allreduce_bounds(topology)
        assert bounds.rank_cuts is not None
        rates = (bounds.any_cut.algbw, bounds.rank_cuts.algbw, bounds.trees, bounds.reduce_scatter_allgather)
        any_cut, rank_cuts, trees, both = map(float, rates)
        print(f"{name:12}{any_cut:9.2f}{rank_cuts:11.2f}{trees:9.2f}{both:28.2f}  {bounds.theorem_19 or 'neither'}")


if __name__ == "__main__":
    main()
