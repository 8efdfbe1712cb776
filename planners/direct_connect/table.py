"""Dynamic program over divisors for low-hop, load-balanced topologies (direct-connect paper, section 5.4), top-down.

The best topologies of N nodes and d ports are bases, or expansions of the best ones of sizes and degrees that divide N
and d; theorems say their T_L and T_B.  Products keep to a list of their own, as Theorem 13 asks for simple graphs.
"""

from collections.abc import Callable, Iterable, Iterator
from fractions import Fraction
from functools import cache
from typing import Literal

from .bases import (
    SEARCH_EFFORT,
    BaseEntry,
    Entry,
    bandwidth_optimal_bases,
    bases,
    best_circulants,
    by_hops,
    optimum,
    order_of_entry,
    pareto,
)
from .constructions import CartesianPower, CartesianProduct, Construction, DegreeExpansion, LineGraph, Parallel, TwoWay

Kind = Literal["any", "reverse-symmetric", "two-way"]
"""What graphs are looked for: those that are their own transpose, up to the order of the nodes, can be made two-way."""

MAX_SEARCHED_NODES = 64
RINGS = ("unidirectional_ring", "bidirectional_ring")
TIES = 4  # topologies of equal T_L and T_B that are kept where all-to-all matters


class FinderTable:
    """The best topologies of every requested size and degree."""

    def __init__(self, ties: int = TIES, searched: int = MAX_SEARCHED_NODES) -> None:
        self._ties = ties
        self._search_limit = searched

    @cache  # noqa: B019 - tables live as long as the process
    def best(self, nodes: int, degree: int, kind: Kind = "any") -> tuple[Entry, ...]:
        """List the Pareto-optimal topologies; see `pareto`."""
        entries = list(self.all_entries(nodes, degree, kind))
        kept = pareto(entries, self._ties)
        if not all(entry.loop_free for entry in kept):
            # Self-loops, which few expansions accept, never dominate graphs without.
            names = {id(entry) for entry in kept}
            spare = pareto((entry for entry in entries if entry.loop_free), self._ties)
            kept = sorted((*kept, *(entry for entry in spare if id(entry) not in names)), key=order_of_entry)
        return tuple(kept)

    @cache  # noqa: B019
    def factors(self, nodes: int, degree: int, kind: Kind) -> tuple[Entry, ...]:
        """List the topologies of fewest steps that are simple and have a bandwidth-optimal breadth-first schedule."""
        products = list(self._products(nodes, degree, kind))
        fewest = min((entry.steps for entry in products), default=0)
        return tuple(by_hops((entry for entry in products if entry.steps == fewest), self._ties))

    def all_entries(self, nodes: int, degree: int, kind: Kind = "any") -> Iterator[Entry]:
        """Yield all bases of a size and all expansions of optimal smaller entries, dominated or not."""
        yield from _listed(bases, nodes, degree, kind)
        yield from self._searched(nodes, degree, kind)
        yield from self.factors(nodes, degree, kind)
        if kind != "two-way":
            yield from self._line_graphs(nodes, degree, kind)
        elif degree % 2 == 0:
            for entry in self.best(nodes, degree // 2, "reverse-symmetric"):
                # Appendix A.6; links of both directions may coincide, so the graph may not be simple.
                yield entry._replace(construction=TwoWay(entry.construction), simple=False, breadth_first=False)
        yield from self._degree_expansions(nodes, degree, kind)
        yield from self._powers(nodes, degree, kind)
        yield from self._parallels(nodes, degree, kind)

    def _line_graphs(self, nodes: int, degree: int, kind: Kind) -> Iterator[Entry]:
        """Theorem 7.

        By Theorem 10 a line graph's best breadth-first broadcast would cost the same if the base's schedule is one.
        That is not so on L(UniRing(1, 3)^□2), where it takes 17/18 M/B and not 1, so nothing is made of it.
        """
        if degree < 2 or nodes % degree or nodes == degree:
            return
        size = nodes // degree
        for entry in self.best(size, degree, kind):
            yield entry.changed(
                Fraction(1, size),
                steps=entry.steps + 1,
                hops=degree * degree * (entry.hops + size * size) - 2 * nodes,
                construction=LineGraph(entry.construction),
                simple=entry.loop_free,
                breadth_first=False,
            )

    def _degree_expansions(self, nodes: int, degree: int, kind: Kind) -> Iterator[Entry]:
        """Theorem 11, for graphs without self-loops."""
        for copies in range(2, degree + 1):
            if nodes % copies or degree % copies or nodes == copies:
                continue
            size = nodes // copies
            for entry in self.best(size, degree // copies, kind):
                if not entry.loop_free:
                    continue
                yield entry.changed(
                    Fraction(copies - 1, nodes),
                    steps=entry.steps + 1,
                    hops=copies * copies * entry.hops + 2 * nodes * (copies - 1),
                    construction=DegreeExpansion(entry.construction, copies),
                    breadth_first=False,
                )

    def _powers(self, nodes: int, degree: int, kind: Kind) -> Iterator[Entry]:
        """Theorem 12; powers that Theorem 13 covers are among the products."""
        for times, size in _roots(nodes):
            if degree % times:
                continue
            for entry in self.best(size, degree // times, kind):
                if not entry.loop_free:
                    continue
                yield entry.changed(
                    Fraction(0),
                    optimum(nodes) / optimum(size),
                    steps=times * entry.steps,
                    hops=times * entry.hops * size ** (2 * (times - 1)),
                    construction=CartesianPower(entry.construction, times),
                    breadth_first=False,
                )

    def _parallels(self, nodes: int, degree: int, kind: Kind) -> Iterator[Entry]:
        """The same graph with k links in place of each; rings are bases at every degree."""
        for times in range(2, degree + 1):
            if degree % times:
                continue
            for entry in self.best(nodes, degree // times, kind):
                base = entry.construction
                if not isinstance(base, Parallel) and getattr(base, "family", "") not in RINGS:
                    yield entry._replace(construction=Parallel(base, times), simple=False)

    def _searched(self, nodes: int, degree: int, kind: Kind) -> tuple[Entry, ...]:
        """List the circulants of small sizes."""
        return _listed(best_circulants, nodes, degree, kind, SEARCH_EFFORT) if nodes <= self._search_limit else ()

    def _allowed(self, nodes: int, degree: int, kind: Kind) -> tuple[Entry, ...]:
        """List the bases that Theorem 13 allows in products; generalized Kautz graphs are not among them."""
        searched = (entry for entry in self._searched(nodes, degree, kind) if entry.factor == optimum(nodes))
        return (*_listed(bandwidth_optimal_bases, nodes, degree, kind), *searched)

    @cache  # noqa: B019
    def _allowed_below(self, nodes: int, degree: int, kind: Kind) -> tuple[tuple[int, tuple[Entry, ...]], ...]:
        """List `_allowed` of all lower degrees, by degree."""
        if degree == 1:
            return ()
        last = self._allowed(nodes, degree - 1, kind)
        return (*self._allowed_below(nodes, degree - 1, kind), *([(degree - 1, last)] if last else ()))

    def _products(self, nodes: int, degree: int, kind: Kind) -> Iterator[Entry]:
        """Theorem 13: bases that meet its conditions, and products of such a base and a product, of fewest steps."""
        pairs = [
            (entry.steps + other.steps, entry.hops * (nodes // size) ** 2 + other.hops * size**2, entry, other)
            for size in _divisors(nodes)
            for ports, entries in self._allowed_below(size, degree, kind)
            for factors in (self.factors(nodes // size, degree - ports, kind),)
            for entry in entries
            for other in factors
        ]
        yield from self._allowed(nodes, degree, kind)
        fewest = min((steps for steps, *_ in pairs), default=0)
        first = {hops: (entry, other) for steps, hops, entry, other in reversed(pairs) if steps == fewest}
        for hops, (entry, other) in first.items():
            yield _product(entry, other, nodes, hops)


@cache
def _listed(
    source: Callable[..., Iterable[BaseEntry]], nodes: int, degree: int, kind: Kind, *effort: int
) -> tuple[Entry, ...]:
    """List what a function of `bases` finds, of one kind."""
    return tuple(
        base.entry
        for base in source(nodes, degree, *effort)
        if kind == "any" or (base.two_way if kind == "two-way" else base.reverse_symmetric)
    )


@cache
def _divisors(nodes: int) -> tuple[int, ...]:
    """Divisors other than 1 and the number itself."""
    return tuple(size for size in range(2, nodes // 2 + 1) if nodes % size == 0)


def _product(one: Entry, other: Entry, nodes: int, hops: int) -> Entry:
    parts = sorted((*_parts(one.construction), *_parts(other.construction)), key=lambda part: part.name)
    return Entry(one.steps + other.steps, optimum(nodes), hops, CartesianProduct(tuple(parts)))


def _parts(construction: Construction) -> tuple[Construction, ...]:
    return construction.factors if isinstance(construction, CartesianProduct) else (construction,)


def _roots(nodes: int) -> Iterator[tuple[int, int]]:
    """Exponents above 1 and bases above 1 of which `nodes` is the power."""
    for times in range(2, nodes.bit_length()):
        size = round(nodes ** (1 / times))
        if size > 1 and size**times == nodes:
            yield times, size
