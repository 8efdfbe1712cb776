"""A latency term: of all ways to reach the best rate, the one whose data takes the fewest hops.

Every rank's witness flow shows over which links the other shards reach it.  The least total flow at a given rate,
divided by what arrives, is a lower bound on the mean number of links that a byte crosses on its way to a rank.
"""

from __future__ import annotations

import collopt
from collopt.formulations import throughput


def main() -> None:
    """Print the mean number of hops for each share of the best rate."""
    topology = collopt.topologies.torus(3, 3, bandwidth=25).derate("gpu0.0", "gpu0.1", "1/5")
    model = throughput.build(topology)
    best = collopt.solve(model).objective
    arriving = topology.num_ranks * (topology.num_ranks - 1)

    model.minimize(sum(model.variables.flow.values()))
    print("rate   GB/s      mean hops at least")
    for percent in (25, 50, 75, 90, 100):
        rate = best * percent / 100
        model.variables.rate.setlb(rate * (1 - 1e-9))
        hops = collopt.solve(model).objective / (rate * arriving)
        print(f"{percent:3} %  {rate * topology.num_ranks:7.2f}   {hops:6.3f}")

    plan = collopt.plan(topology, "allgather")
    print(f"planned trees: height {plan.heights.highest} at most, {plan.heights.mean:.2f} on average, gap {plan.gap}")


if __name__ == "__main__":
    main()
