"""Two collectives on one fabric: as fast as the slower one allows, or proportionally fair.

An allgather of a training job and a broadcast of new weights share two boxes.  Max-min fairness is a linear program;
the greatest sum of logarithms of the rates is not, so the same constraints go to CVXPY.
"""

from __future__ import annotations

import cvxpy

import collopt
from collopt.formulations import cvxpy_constraints, sharing, throughput


def parts(topology: collopt.Topology) -> dict[str, throughput.ThroughputModel]:
    """State the two collectives; each model can be part of one joint program only."""
    only_first = [1] + [0] * (topology.num_ranks - 1)
    return {"training": throughput.build(topology), "weights": throughput.build(topology, weights=only_first)}


def max_min(topology: collopt.Topology) -> dict[str, float]:
    """Raise the smallest rate as far as it goes, then the others without lowering it."""
    collectives = parts(topology)
    model = sharing.build(topology, collectives)
    least = collopt.solve(model).objective
    rates = {name: part.variables.rate for name, part in collectives.items()}
    model.constrain("keep_least", model.variables.least >= least * (1 - 1e-9))
    model.maximize(sum(rates.values()))
    values = collopt.solve(model).values
    return {name: values[f"{name}.rate"] for name in rates}


def proportional(topology: collopt.Topology) -> dict[str, float]:
    """Maximise the sum of the logarithms of the rates."""
    collectives = parts(topology)
    program = cvxpy_constraints.restate(sharing.build(topology, collectives))
    rates = {name: program.variables[f"{name}.rate"] for name in collectives}
    program.maximize(sum(map(cvxpy.log, rates.values()))).solve(solver=cvxpy.CLARABEL)
    return {name: float(rate.value) for name, rate in rates.items()}


def main() -> None:
    """Print both divisions of the fabric."""
    topology = collopt.topologies.dgx_a100(boxes=2)
    alone = {name: collopt.solve(part).objective for name, part in parts(topology).items()}
    print("GB/s per root             training   weights")
    for title, rates in (("alone", alone), ("max-min", max_min(topology)), ("proportional", proportional(topology))):
        print(f"{title:24}  {rates['training']:8.2f}  {rates['weights']:8.2f}")


if __name__ == "__main__":
    main()
