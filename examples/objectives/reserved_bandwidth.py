"""Leave bandwidth to another job: add constraints to the throughput model and see what the allgather loses.

Storage traffic is to keep 10 GB/s of the network cards of one box.  The linear program says what the allgather still
reaches; its exact value is that of the network with this much less bandwidth, for which trees are then planned.
"""

from __future__ import annotations

import collopt
from collopt.formulations import throughput

BOX, CARDS, RESERVED = "box0", range(8), 10


def cards(topology: collopt.Topology) -> list[tuple[str, str]]:
    """List the links between the network cards of the box and the fabric, in both directions."""
    names = {f"{BOX}/nic{card}" for card in CARDS}
    return [link[:2] for link in topology.links if {link.tail, link.head} & names and "ib" in link[:2]]


def main() -> None:
    """Constrain, solve, and plan on what is left."""
    topology = collopt.topologies.dgx_a100(boxes=2)
    model = throughput.build(topology)
    before = collopt.solve(model).objective * topology.num_ranks

    for number, link in enumerate(cards(topology)):
        free = topology.link(*link).bandwidth - RESERVED
        model.constrain(f"storage_{number}", model.variables.share[link] <= float(free))
    after = collopt.solve(model).objective * topology.num_ranks

    left = topology
    for tail, head in cards(topology):
        bandwidth = topology.link(tail, head).bandwidth
        left = left.derate(tail, head, (bandwidth - RESERVED) / bandwidth, bidirectional=False)
    plan = collopt.plan(left, "allgather")

    print(f"alone                        {before:7.2f} GB/s")
    print(f"beside {RESERVED} GB/s of storage    {after:7.2f} GB/s by the linear program")
    print(f"planned on what is left      {float(plan.algbw):7.2f} GB/s, gap {plan.gap}")


if __name__ == "__main__":
    main()
