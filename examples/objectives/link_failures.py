"""What any single cable may fail: the best rate that survives, and the least bandwidth that has to be kept for it.

Failures are scenarios, and one reservation of bandwidth must do for all of them: each scenario is the throughput model
of the network without one cable.  The rate alone equals the smallest exact bound over the failures; the cheapest
reservation for it needs the model.
"""

from __future__ import annotations

import pyomo.environ as pyo

import collopt
from collopt.formulations import PyomoModel, throughput
from collopt.solvers import Algorithm

INTERIOR_POINT = collopt.HighsOptions(algorithm=Algorithm.IPM)

Cable = tuple[str, str]


def cables(topology: collopt.Topology) -> list[Cable]:
    """List the pairs of nodes with links, each once."""
    return sorted({(min(link.tail, link.head), max(link.tail, link.head)) for link in topology.links})


def survival(topology: collopt.Topology, failures: list[Cable]) -> PyomoModel:
    """State the best rate of an allgather that one reservation guarantees under any of the failures."""
    program = pyo.ConcreteModel(name=f"survival of {topology.name}")
    bandwidth = {(link.tail, link.head): float(link.bandwidth) for link in topology.links}
    program.rate = pyo.Var(domain=pyo.NonNegativeReals)
    program.reserved = pyo.Var(list(bandwidth), bounds=lambda _, *link: (0, bandwidth[link]))
    model = PyomoModel(program)
    for number, cable in enumerate(failures):
        scenario = throughput.build(topology.without_link(*cable))
        scenario.program.objective.deactivate()
        program.add_component(f"without_{number}", scenario.program)
        rate, share = scenario.variables.rate, scenario.variables.share
        model.constrain(f"promise_{number}", program.rate <= rate)
        model.constrain(f"within_{number}", {link: share[link] <= program.reserved[link] for link in share})
    model.maximize(program.rate)
    return model


def main() -> None:
    """Solve for the rate, check it failure by failure, then minimise the reservation."""
    topology = collopt.topologies.torus(3, 3, bandwidth=25).derate("gpu0.0", "gpu0.1", "1/5")
    ranks = topology.num_ranks
    whole = collopt.bound(topology, "allgather").algbw

    model = survival(topology, cables(topology))
    rate = collopt.solve(model, INTERIOR_POINT).objective
    exact = min((collopt.bound(topology.without_link(*cable), "allgather").algbw, cable) for cable in cables(topology))

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
