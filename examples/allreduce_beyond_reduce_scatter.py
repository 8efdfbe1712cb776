"""Allreduce faster than a reduce-scatter and an allgather: six networks, each with its proof.

A reduce-scatter and an allgather give every rank the same share of the data.  Where the network is uneven that is too
much for some links, and nothing forces an allreduce to do it.  Run it with
``python examples/allreduce_beyond_reduce_scatter.py``; ``docs/explanation/allreduce.md`` has the theorem.
"""

from __future__ import annotations

import sys

import collopt
from collopt.errors import ColloptError
from collopt.planners.trees.forestcoll import plan_trees
from collopt.planners.trees.strength import plan_strength
from collopt.runtime import lower, run_program
from collopt.schedules import Partition
from collopt.topologies import Topology, dgx_a100, mi250

ONE_LINK = [(0, 7), (0, 7), (0, 4), (4, 7), (4, 5), (1, 6), (1, 6), (1, 2), (2, 3), (2, 5), (3, 5), (3, 6)]
"""Three links per rank, but one link between {0, 4, 7} and the others."""

THREE_GROUPS = [(0, 1), (0, 1), (1, 2), (2, 3), (2, 3), (3, 4), (4, 5), (4, 6), (5, 6), (5, 7), (6, 7), (7, 0)]
"""Three links per rank: {0, 1}, {2, 3} and {4, 5, 6, 7} in a ring of single links."""


def networks() -> dict[str, Topology]:
    """Return the networks by what is uneven about them."""
    pods = dgx_a100(boxes=3).restrict(range(20))
    tired = dgx_a100(boxes=4).without_link("box0/nic0", "ib").without_link("box0/nic1", "ib")
    return {
        "8 ranks with 3 links of 1 GB/s each, one link between 3 and 5 of them": cubic(ONE_LINK),
        "8 ranks with 3 links of 1 GB/s each, a ring of groups of 2, 2 and 4": cubic(THREE_GROUPS),
        "a job on 8 of 16 GPUs in each of two MI250 boxes": mi250(boxes=2).restrict([*range(8), *range(16, 24)]),
        "a job on 8, 8 and 4 GPUs of three A100 boxes": pods,
        "four A100 boxes, two NICs of one box failed": tired,
        "two A100 boxes, one NIC at a quarter of its speed": dgx_a100(boxes=2).derate("box0/nic0", "ib", "1/4"),
    }


def cubic(pairs: list[tuple[int, int]]) -> Topology:
    """Join eight ranks by links of 1 GB/s."""
    links = [(str(tail), str(head), 1) for tail, head in pairs]
    return Topology.from_links(links, compute=map(str, range(8)), bidirectional=True)


def show_bound(bound: collopt.Bound) -> None:
    """Print the bound and add up its witness in the open."""
    assert isinstance(bound.witness, Partition)
    topology, ranks = bound.topology, set(bound.topology.compute_nodes)
    sizes = sorted((len(part & ranks) for part in bound.witness.parts if part & ranks), reverse=True)
    entering = bound.witness.crossing(topology, "allreduce").bandwidth
    shown = " + ".join(map(str, sizes)) if len(sizes) < 6 else f"{sizes[0]} + .. + {sizes[-1]}"
    print(f"  bound      {float(bound.algbw):7.2f} GB/s: {len(sizes)} parts of {shown} ranks receive at least")
    print(f"             {2 * (len(sizes) - 1)} times all data, over {float(entering):g} GB/s")


def show(name: str, topology: Topology) -> bool:
    """Plan, prove and execute an allreduce on one network; return whether it is optimal."""
    print(name)
    halves = collopt.bound(topology, "allgather").algbw / 2
    shards = plan_trees(topology, "allreduce")
    plan = plan_strength(topology)
    plan.verify()
    print(f"  in turn    {float(halves):7.2f} GB/s: the best reduce-scatter, then the best allgather")
    print(f"  at once    {float(shards.algbw):7.2f} GB/s: both along the same trees, an equal shard per rank")
    print(f"  strength   {float(plan.algbw):7.2f} GB/s: {plan.schedule.num_trees // 2} trees, gap {plan.gap}")
    show_bound(plan.bound)
    report = run_program(lower(plan.schedule, "allreduce", topology=plan.topology), interleavings=2)
    print(f"  executed   the right sums on all ranks in {report.steps} steps")
    return plan.gap == 0


def main() -> int:
    """Go through all networks; return the exit status."""
    verdicts = [show(name, topology) for name, topology in networks().items()]
    print("All of these are optimal." if all(verdicts) else "Some of these are NOT optimal.")
    return 0 if all(verdicts) else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except ColloptError as error:
        sys.exit(f"allreduce_beyond_reduce_scatter: {error}")
