"""The minimality-or-saturation dilemma of ForestColl's appendix D: how far whole chunks stay from the bound.

Two boxes of four GPUs, 10 GB/s to a switch in the box and 1 GB/s to one between boxes.  An allgather whose ranks pass
on whole chunks takes at least (1 + 1 / (5 s)) times the bound if a shard is cut into s chunks or fewer; a plan of
trees takes (1 + 3 / (10 s)).  ``docs/explanation/refutations.md`` has the proof.
"""

from __future__ import annotations

from fractions import Fraction

import collopt
from collopt.topologies import Topology

NUM_BYTES = 8 * 10**6
INSIDE, BETWEEN = 10, 1  # GB/s


def two_boxes(unit: Fraction = Fraction(1)) -> Topology:
    """Figures 5, 7 and 15 of ForestColl, figure 1 of the pipeline paper."""
    ranks = [f"c{box}{number}" for box in (1, 2) for number in (1, 2, 3, 4)]
    inside = [(rank, f"w{rank[1]}", INSIDE * unit) for rank in ranks]
    between = [(rank, "w0", BETWEEN * unit) for rank in ranks]
    return Topology.from_links(
        [*inside, *between], compute=ranks, switches=["w0", "w1", "w2"], bidirectional=True, name="two boxes of four"
    )


def least_factor(chunks: int) -> Fraction:
    """Least time over the bound where a chunk is at least 1/`chunks` of a shard.

    The chunk whose way into a box ends last needs two more hops inside if it came in once, which doubles its holders
    with each; if it came in twice, one chunk more has come in over four links.
    """
    return 1 + Fraction(1, chunks) * min(Fraction(2 * BETWEEN, INSIDE), Fraction(1, 4))


def main() -> None:
    """Simulate the plan with ever smaller chunks."""
    plan = collopt.plan(two_boxes(), "allgather")
    plan.verify()
    bound = NUM_BYTES / float(plan.bound.algbw) / 1e3
    print("chunks per shard  time / bound  least")
    for chunks in (1, 4, 16, 64, 256):
        print(
            f"{chunks:16}  {plan.simulate(NUM_BYTES, slices=chunks) / bound:12.5f}  {float(least_factor(chunks)):.5f}"
        )


if __name__ == "__main__":
    main()
