"""Links that cost money or power: the cheapest way to reach a share of the best rate.

Traffic between racks of a torus is billed ten times as high as traffic inside one.  For each share of the best rate
the model finds the cheapest use of the links, which traces the trade-off between speed and cost.
"""

from __future__ import annotations

import collopt
from collopt.formulations import throughput
from collopt.topologies import Link

INSIDE, BETWEEN = 1, 10


def price(link: Link) -> int:
    """Price of 1 GB/s: the first coordinate of a node's name is its rack."""
    racks = {node.split(".")[0] for node in link[:2]}
    return INSIDE if len(racks) == 1 else BETWEEN


def main() -> None:
    """Print the cost of each share of the best rate."""
    topology = collopt.topologies.torus(3, 3, bandwidth=25)
    model = throughput.build(topology)
    best = collopt.solve(model).objective

    model.minimize(sum(price(link) * model.variables.share[link[:2]] for link in topology.links))
    print("rate   GB/s       cost   cost per GB/s")
    for percent in (25, 50, 75, 90, 100):
        rate = best * percent / 100
        model.variables.rate.setlb(rate * (1 - 1e-9))
        cost, algbw = collopt.solve(model).objective, rate * topology.num_ranks
        print(f"{percent:3} %  {algbw:7.2f}  {cost:7.1f}   {cost / algbw:7.3f}")


if __name__ == "__main__":
    main()
