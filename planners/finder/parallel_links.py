"""Circulants with parallel links, for at least as many ports as nodes.

Every offset of a simple circulant is there equally often, and some are there once more.  In one step, which only the
complete graph of n nodes takes, T_B is ``d / (n floor(d / (n - 1)))`` M/B: the pair of nodes with the fewest links
decides, and no topology has more links for it.  In more steps, T_B exceeds that of the simple circulant by at most the
part of ports that are left over.
"""

from collections.abc import Iterator

from .bases import MAX_SEARCHED_DEGREE, circulant_of_offsets, offset_sets
from .constructions import Base

Offsets = tuple[int, ...]


def parallel_circulants(nodes: int, degree: int, effort: int, *, two_way: bool) -> Iterator[Base]:
    """List circulants of some ports left over; those of none are found as repetitions of simple graphs."""
    for simple in _simple_sets(nodes, effort) if degree >= nodes else ():
        copies, left = divmod(degree, len(simple))
        if left == 0 or (two_way and not _has_opposites(nodes, simple)):
            continue
        name = f"K({nodes})" if len(simple) == nodes - 1 else circulant_of_offsets(nodes, simple).name
        for more in _further(nodes, left, simple):
            if _has_opposites(nodes, more) or not two_way:
                title = f"{name if copies == 1 else f'{copies}·{name}'} ∪ {circulant_of_offsets(nodes, more).name}"
                yield Base("circulant_digraph", (nodes, (*simple * copies, *more)), title)


def _simple_sets(nodes: int, effort: int) -> Iterator[Offsets]:
    """Yield all offsets, all but one, and those of searched circulants."""
    yield tuple(range(1, nodes))
    if nodes > 3:
        yield tuple(range(1, nodes - 1))
    for size in range(2, min(nodes - 2, MAX_SEARCHED_DEGREE + 1)):
        yield from offset_sets(nodes, size, effort)


def _further(nodes: int, count: int, simple: Offsets) -> dict[Offsets, None]:
    """Return offsets of the ports left over: simple ones, next to each other or apart, and any with opposites."""
    spread = tuple(simple[place * len(simple) // count] for place in range(count))
    found = [simple[:count], spread]
    middle = (nodes // 2,) if count % 2 else ()
    if not middle or nodes % 2 == 0:
        half = range(1, (nodes + 1) // 2)
        for apart in (1, max(1, 2 * len(half) // count)):
            chosen = [half[place * apart] for place in range(count // 2)] if count // 2 * apart <= len(half) else []
            found.append(tuple(sorted((*chosen, *middle, *(nodes - each for each in chosen)))))
    return dict.fromkeys(each for each in found if len(each) == count)


def _has_opposites(nodes: int, offsets: Offsets) -> bool:
    return all(nodes - offset in offsets for offset in offsets)
