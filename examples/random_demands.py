"""How often trees of demands miss the bound: random items on random networks of up to 8 ranks.

Networks have one-way links, switches that pass data on, or switches of which most multicast.  Run ``python
examples/random_demands.py 360``.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import pairwise
from random import Random

import collopt
from collopt import Demands, Plan, Topology
from collopt.errors import BoundError, TopologyError


def random_network(draw: Random) -> Topology:
    """Draw a network without switches, with a ring through all ranks, or one of up to three switches in a line."""
    ranks = [f"r{number}" for number in range(draw.randint(3, 8))]
    kind = draw.choice(["direct", "switched", "multicast"])
    if kind == "direct":
        order = draw.sample(ranks, len(ranks))
        ends = {*pairwise([*order, order[0]])}
        ends |= {(tail, head) for tail, head in (draw.sample(ranks, 2) for _ in range(draw.randint(1, 2 * len(ranks))))}
        return Topology.from_links([(*pair, draw.randint(1, 9)) for pair in sorted(ends)], compute=ranks)
    switches = [f"s{number}" for number in range(draw.randint(1, 3))]
    cables = {(rank, draw.choice(switches)) for rank in ranks} | {*pairwise(switches)}
    cables |= {(one, other) for one, other in (draw.sample(ranks + switches, 2) for _ in range(len(ranks)))}
    links = []
    for one, other in sorted({pair for pair in cables if pair[::-1] not in cables or pair < pair[::-1]}):
        width = draw.randint(1, 9)
        links.append((one, other, width))
        if one in switches or other in switches or draw.random() < 0.75:
            links.append((other, one, draw.choice([width, draw.randint(1, 9)])))
    able = [switch for switch in switches if kind == "multicast" and draw.random() < 0.8]
    return Topology.from_links(links, compute=ranks, switches=switches, multicast=able)


def random_items(draw: Random, topology: Topology) -> Demands:
    """Draw up to four items with up to two sources and four destinations."""
    items = []
    for number in range(draw.randint(1, 4)):
        ranks = draw.sample(topology.compute_nodes, topology.num_ranks)
        count = draw.randint(1, 2)
        rest = ranks[count:]
        items.append((f"item{number}", draw.randint(1, 5), ranks[:count], rest[: draw.randint(1, min(4, len(rest)))]))
    return Demands(items)


def plans(seeds: Iterable[int]) -> Iterator[Plan]:
    """Plan for one random network after the other; networks that cannot be are left out."""
    for seed in seeds:
        draw = Random(seed)
        with suppress(TopologyError, BoundError):
            topology = random_network(draw)
            yield collopt.plan(topology, random_items(draw, topology))


def main() -> None:
    """Count the plans at the bound, and show how far the others are off."""
    planned = list(plans(range(int(sys.argv[1]) if len(sys.argv) > 1 else 60)))
    gaps = sorted((plan.gap for plan in planned if plan.gap), reverse=True)
    witnesses = Counter(type(plan.bound.witness).__name__ for plan in planned)
    print(
        f"{len(planned)} plans, {len(gaps)} below the bound: {', '.join(f'{float(gap):.1%}' for gap in gaps) or 'none'}"
    )
    print(", ".join(f"{count} bounds by {name}" for name, count in witnesses.items()))


if __name__ == "__main__":
    main()
