"""Conjecture 1 of the direct-connect paper is false: C(15, {1, 4, 5}) has no bandwidth-optimal breadth-first schedule.

The conjecture (*Efficient Direct-Connect Topologies for Collective Communications*, appendix F.4) says that
breadth-first broadcast is bandwidth-optimal on every circulant graph C(n, {a1, ..., ak}); the paper proves it for two
offsets.  This script finds sets of sources that refute it by Theorem 19, with numbers that can be checked by hand: for
three offsets, and for the smallest of all graphs that do.  Then it looks for more.  It needs nothing but Python: no
solver, and nothing of collopt.

Theorem 19: in step t, the m nodes at distance t from a node u send it their shards over its d links.  The load can be
even if and only if no set J of these nodes has |J| / |links that nodes in J can use| > m / d.  A node v can use the
link from w if w is one hop closer to it than u is.  Looking at u = 0 is enough, because adding a number to all nodes
maps the graph to itself and 0 to any node.

Run ``python examples/circulant_conjecture.py --up-to 28`` to search further.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import combinations
from math import gcd
from typing import NamedTuple


class Violation(NamedTuple):
    """A set of sources that has too few links, at one distance from node 0."""

    distance: int
    sources: tuple[int, ...]  # J
    links: tuple[int, ...]  # what J can use; -4 is the link from node n - 4
    due: int  # m: all nodes at this distance
    degree: int  # d

    @property
    def load(self) -> Fraction:
        """Shards that the busiest of these links must carry at least."""
        return Fraction(len(self.sources), len(self.links))

    @property
    def even_load(self) -> Fraction:
        """Shards per link if all links carried the same."""
        return Fraction(self.due, self.degree)


def distances(n: int, offsets: Sequence[int]) -> list[int]:
    """Count the hops from node 0 to every node of C(n, offsets)."""
    found = {0: 0}
    wave = [0]
    while wave:
        wave = list({(node + sign * a) % n for node in wave for a in offsets for sign in (1, -1)} - found.keys())
        found |= dict.fromkeys(wave, max(found.values()) + 1)
    return [found[node] for node in range(n)]


def usable_links(n: int, links: Sequence[int], hops: Sequence[int]) -> Iterator[tuple[int, int]]:
    """For every node but 0, give the node and its links into 0, as the bits of a number."""
    for node in range(1, n):
        closer = (hops[(link - node) % n] + 1 == hops[node] for link in links)
        yield node, sum(1 << bit for bit, usable in enumerate(closer) if usable)


def worst_violation(n: int, offsets: Sequence[int]) -> Violation | None:
    """Look at every set of links; return the one most overloaded, or None if breadth-first broadcast is optimal.

    For a set of links, the sources that can use no others are the largest J to consider.
    """
    links = [sign * a for a in offsets for sign in (1, -1)]
    hops = distances(n, offsets)
    usable = dict(usable_links(n, links, hops))
    found = []
    for distance in range(1, max(hops) + 1):
        due = [node for node in usable if hops[node] == distance]
        for chosen in range(1, 1 << len(links)):
            size = chosen.bit_count()
            confined = tuple(node for node in due if usable[node] & ~chosen == 0)
            if len(confined) * len(links) > len(due) * size:
                names = tuple(link for bit, link in enumerate(links) if chosen >> bit & 1)
                found.append(Violation(distance, confined, names, len(due), len(links)))
    # The sharpest; of equally sharp ones, that with the most links, which contains the others at its distance.
    return min(found, key=lambda violation: (violation.even_load / violation.load, -len(violation.links)), default=None)


def offset_sets(n: int, k: int) -> Iterator[tuple[int, ...]]:
    """Go through the connected circulant graphs with n nodes and k offsets, all below n/2: 2 k links at every node."""
    return (offsets for offsets in combinations(range(1, (n + 1) // 2), k) if gcd(n, *offsets) == 1)


def representative(n: int, offsets: Sequence[int]) -> tuple[int, ...]:
    """Return the first of the offset sets that multiplying all nodes by a unit modulo n makes of this one.

    Such a multiplication is an isomorphism, so all of them have a bandwidth-optimal schedule, or none has.
    """
    units = (unit for unit in range(1, n // 2 + 1) if gcd(unit, n) == 1)
    return min(tuple(sorted(min(unit * a % n, -unit * a % n) for a in offsets)) for unit in units)


class Search(NamedTuple):
    """What a search went through, and what it found."""

    graphs: int  # offset sets
    classes: int  # up to multiplication by units: the sets that were looked at
    counter_examples: int  # offset sets
    smallest: tuple[int, tuple[int, ...]] | None
    by_class: list[tuple[int, tuple[int, ...]]]


def search(k: int, sizes: Sequence[int]) -> Search:
    """Test every connected circulant graph with k offsets of these sizes."""
    graphs, classes, count, failing = 0, 0, 0, []
    for n in sizes:
        verdicts: dict[tuple[int, ...], bool] = {}
        for offsets in offset_sets(n, k):
            first = representative(n, offsets)
            if first not in verdicts:
                verdicts[first] = worst_violation(n, first) is not None
                failing += [(n, first)] if verdicts[first] else []
            graphs += 1
            count += verdicts[first]
        classes += len(verdicts)
    return Search(graphs, classes, count, min(failing, default=None), failing)


def show_certificate(n: int, offsets: Sequence[int]) -> None:
    """Print the set that violates Theorem 19, with the links of each of its nodes."""
    violation = worst_violation(n, offsets)
    assert violation is not None
    hops = distances(n, offsets)
    links = [sign * a for a in offsets for sign in (1, -1)]
    usable = dict(usable_links(n, links, hops))
    print(
        f"C({n}, {{{', '.join(map(str, offsets))}}}), {violation.degree} links into node 0, step {violation.distance}"
    )
    for node in violation.sources:
        names = [f"{link:+d}" for bit, link in enumerate(links) if usable[node] >> bit & 1]
        print(f"  source {node:2d} can use only {' '.join(names)}")
    print(f"  links in all: {' '.join(f'{link:+d}' for link in violation.links)}")
    print(
        f"  load {len(violation.sources)}/{len(violation.links)} > {violation.due}/{violation.degree}, "
        "so no breadth-first schedule is bandwidth-optimal"
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Show two counter-examples, then search."""
    parser = argparse.ArgumentParser(description="Look for circulant graphs that refute Conjecture 1.")
    parser.add_argument("--offsets", type=int, default=3, metavar="K", help="offsets of a graph (default: 3)")
    parser.add_argument("--up-to", type=int, default=20, metavar="N", help="largest number of nodes (default: 20)")
    options = parser.parse_args(arguments)
    if options.offsets < 1 or options.up_to < 3:
        parser.error("expected at least one offset, and at least 3 nodes")

    show_certificate(15, (1, 4, 5))
    show_certificate(12, (1, 3, 4, 5))
    found = search(options.offsets, range(3, options.up_to + 1))
    print(
        f"searched  {found.graphs} connected circulant graphs, {options.offsets} offsets, up to {options.up_to} nodes"
    )
    print(f"looked at {found.classes} of them; the others are these with all nodes multiplied by a unit modulo n")
    print(f"refuting  {found.counter_examples} graphs, {len(found.by_class)} up to multiplication")
    for n, offsets in found.by_class:
        print(f"  C({n}, {{{', '.join(map(str, offsets))}}})")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        # As shells report it: whoever stops a long search needs no stack trace.
        raise SystemExit(130) from None
