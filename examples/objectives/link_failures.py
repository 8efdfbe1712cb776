"""What any single cable may fail: the best rate that survives, and the least bandwidth that has to be kept for it.

Failures are scenarios, and one reservation of bandwidth must do for all of them.  The rate alone equals the smallest
exact bound over the failures; the cheapest reservation for it needs the model.
"""

from __future__ import annotations

import collopt
from collopt.formulations import survival
from collopt.solvers import Algorithm

INTERIOR_POINT = collopt.HighsOptions(algorithm=Algorithm.IPM)


def main() -> None:
    """Solve for the rate, check it failure by failure, then minimise the reservation."""
    topology = collopt.topologies.torus(3, 3, bandwidth=25).derate("gpu0.0", "gpu0.1", "1/5")
    ranks = topology.num_ranks
    whole = collopt.bound(topology, "allgather").algbw

    model = survival.build(topology)
    rate = collopt.solve(model, INTERIOR_POINT).objective
    exact = min(
        (collopt.bound(topology.without_link(*cable), "allgather").algbw, cable) for cable in survival.cables(topology)
    )

    model.constrain("keep_rate", model.variables.rate >= rate * (1 - 1e-9))
    model.minimize(sum(model.variables.reserved.values()))
    reserved = collopt.solve(model, INTERIOR_POINT).objective
    there = float(sum(link.bandwidth for link in topology.links))

    print(f"no failure          {float(whole):7.2f} GB/s")
    print(f"any single failure  {rate * ranks:7.2f} GB/s by the linear program")
    print(f"worst failure       {float(exact[0]):7.2f} GB/s by the exact bound, without {'-'.join(exact[1])}")
    print(f"reserved            {reserved:7.2f} of {there:.2f} GB/s of links")


if __name__ == "__main__":
    main()
