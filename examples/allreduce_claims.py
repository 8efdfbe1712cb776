"""Two printed claims on allreduce that fail, with the networks that refute them.

ForestColl (section 5.7) says that a reduce-scatter followed by an allgather is optimal on all networks that it
evaluates; on its own 8 + 8 of 32 MI250 it is not.  The pipeline paper (appendix B) says that these two are always
better than a reduce followed by a broadcast, which fails where reduce and broadcast run at the same time.

docs/explanation/refutations.md has the arithmetic.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from fractions import Fraction

import collopt
from collopt.formulations import allreduce
from collopt.topologies import Topology, mi250

PATH = Topology.from_links([("a", "b", 1), ("b", "c", 1)], compute="abc", bidirectional=True, name="path of 3")
UNEVEN_RING = Topology.from_links(
    [("a", "b", 1), ("b", "c", 2), ("c", "d", 2), ("d", "a", 2)],
    compute="abcd",
    name="ring of 4, one way, a - b slow",
)


def half_of_each_box() -> Topology:
    """GPUs 0 to 7 of each of two MI250 boxes: ForestColl's 8+8 setting (section 6.2.1)."""
    return mi250(boxes=2).restrict([*range(8), *range(16, 24)])


def in_turn(topology: Topology, first: str, second: str, root: str | None = None) -> Fraction:
    """Algorithm bandwidth of the best of one collective, then the best of another, all data each."""
    return 1 / sum((1 / collopt.bound(topology, phase, root=root).algbw for phase in (first, second)), Fraction(0))


def at_once(topology: Topology, roots: Iterable[str] | None = None) -> Fraction:
    """The best trees that reduce and broadcast at the same time: all data at these roots, or equal shards."""
    model = allreduce.build(topology, roots=roots)
    if roots is None:
        first, *others = model.variables.root_rate
        for rank in others:
            model.constrain(f"share_of_{rank}", model.variables.root_rate[rank] == model.variables.root_rate[first])
    rate = collopt.solve(model).exact.objective
    assert rate is not None
    return rate


def show_boxes() -> bool:
    """Compare a reduce-scatter followed by an allgather with the optimum on 8+8 MI250."""
    topology = half_of_each_box()
    plan = collopt.plan(topology, "allreduce")
    plan.verify()
    both = in_turn(topology, "reduce_scatter", "allgather")
    print(f"8+8 MI250: reduce-scatter, then allgather {both} GB/s; allreduce {plan.algbw} GB/s, gap {plan.gap}")
    return both < plan.algbw == plan.bound.algbw


def show_phases(topology: Topology) -> bool:
    """Compare reduce-scatter and allgather with reduce and broadcast; whether the claim fails."""
    root = topology.compute_nodes[0]
    rooted = at_once(topology, [root])
    shards, everything = (
        in_turn(topology, "reduce_scatter", "allgather"),
        in_turn(topology, "reduce", "broadcast", root),
    )
    print(f"{topology.name}, GB/s")
    print(f"  in turn: reduce-scatter, allgather {shards}; reduce, broadcast {everything}")
    print(f"  at once: reduce-scatter, allgather {at_once(topology)}; reduce, broadcast {rooted}")
    print(f"  no allreduce is faster than {collopt.bound(topology, 'allreduce').algbw}")
    return rooted > shards


def main() -> int:
    """Go through the networks; return the exit status."""
    verdicts = [show_boxes(), show_phases(PATH), show_phases(UNEVEN_RING)]
    print("Both claims fail." if all(verdicts) else "A claim holds.")
    return 0 if all(verdicts) else 1


if __name__ == "__main__":
    sys.exit(main())
