"""Frontiers of T_L and T_B that are final: an allgather in two steps on d^2 + d nodes with d links each has T_B >= 1.

In T steps the link from w to u can bring only shards of nodes from which w is at most T - 1 hops away, by ways that do
not lead through u.  Shards that no other link into u can bring have to come over it, whatever the schedule.  This
prints the most of them on Kautz graphs, and the frontier of all networks of the size, which
``docs/explanation/refutations.md`` proves final.
"""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from typing import NamedTuple

import networkx as nx

from collopt.planners import find_topologies
from collopt.topologies import DirectGraph, bandwidth_optimum, kautz

DEGREES = 3, 4, 5


class Forced(NamedTuple):
    """A link, the nodes whose shards only it can bring in so many steps, and what that makes T_B at least."""

    tail: int
    head: int
    sources: frozenset[int]
    factor: Fraction


def most_forced(graph: DirectGraph, steps: int) -> Forced:
    """Find the link with the most shards that have no other way in these steps.

    Raises `ValueError` if some shard has none at all.
    """
    backwards = nx.DiGraph(zip(graph.heads.tolist(), graph.tails.tolist(), strict=True))
    found = []
    for node in range(graph.num_nodes):
        into = [tail for tail in graph.tails[graph.heads == node].tolist() if tail != node]
        others = backwards.subgraph(set(backwards) - {node})  # what has come to the node need not come back
        sources = {tail: set(nx.single_source_shortest_path_length(others, tail, steps - 1)) for tail in into}
        ways = Counter(source for tail in into for source in sources[tail])
        if len(ways) < graph.num_nodes - 1:
            raise ValueError(f"{steps} steps do not reach node {node} from all others of {graph!r}")
        for tail in into:
            alone = frozenset(source for source in sources[tail] if ways[source] == 1)
            found.append(Forced(tail, node, alone, Fraction(graph.degree * len(alone), graph.num_nodes)))
    return max(found, key=lambda each: each.factor)


def main() -> None:
    """Print a line for each degree."""
    for degree in DEGREES:
        graph = kautz(degree, 1).direct_graph()
        forced = most_forced(graph, 2)
        alone = f"{len(forced.sources)} of {graph.num_nodes - 1} shards"
        print(f"degree {degree}, {graph.num_nodes} nodes: only {forced.tail} -> {forced.head} can bring {alone}")
        frontier = find_topologies(graph.num_nodes, degree, all_to_all=False)
        costs = ", ".join(f"T_L {each.cost.steps} T_B {each.cost.bandwidth_factor}" for each in frontier)
        print(f"  two steps take T_B {forced.factor} or more; frontier: {costs}; room {max(frontier.room().values())}")
        assert forced.factor > bandwidth_optimum(graph.num_nodes)


if __name__ == "__main__":
    main()
