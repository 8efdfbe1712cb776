"""Every tree that branches at ranks and at switches that can, on tiny networks, and the best packing of all of them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations, pairwise, product

import numpy as np
from scipy.optimize import linprog

from collopt.schedules import Collective
from collopt.topologies import Topology

__all__ = ["best_rate", "load_rows"]

Path = tuple[str, ...]


def best_rate(topology: Topology, collective: Collective) -> float:
    """Algorithm bandwidth of the best packing, for equal shards; one variable per tree."""
    ranks = topology.compute_nodes
    columns = [
        (rank, direction, row)
        for direction in collective.phases
        for rank in ranks
        for row in load_rows(topology, rank, direction)
    ]
    two = collective.has_two_phases
    rates = len(ranks) if two else 1
    matrix = np.array([row for _, _, row in columns], dtype=float).T
    limits = np.hstack([np.zeros((len(topology.links), rates)), matrix])
    equal = []
    for direction in collective.phases:
        for place, rank in enumerate(ranks):
            shares = -np.eye(rates)[place] if two else -np.ones(1)
            equal.append([*shares, *(float(column[:2] == (rank, direction)) for column in columns)])
    found = linprog(
        [*(-1.0 for _ in range(rates)), *(0.0 for _ in columns)],
        A_ub=limits,
        b_ub=[float(link.bandwidth) for link in topology.links],
        A_eq=equal,
        b_eq=np.zeros(len(equal)),
    )
    return float(-found.fun) * (1 if two else len(ranks))


def load_rows(topology: Topology, root: str, direction: str) -> set[tuple[int, ...]]:
    """What each tree of a root puts on the links, without those that put more on every link."""
    able = sorted(topology.multicast if direction == "broadcast" else topology.aggregation)
    found: set[tuple[int, ...]] = set()
    for count in range(len(able) + 1):
        for switches in combinations(able, count):
            for parents in _trees(root, [*topology.compute_nodes, *switches]):
                choices = [list(_paths(topology, tail, head, direction)) for head, tail in parents.items()]
                found |= {_loads(topology, parents, paths, direction) for paths in product(*choices)} - {()}
    return {row for row in found if not any(_less(other, row) for other in found)}


def _less(one: tuple[int, ...], other: tuple[int, ...]) -> bool:
    return one != other and all(a <= b for a, b in zip(one, other, strict=True))


def _trees(root: str, vertices: list[str]) -> Iterator[dict[str, str]]:
    """Every way to give each vertex but the root another one above it, such that all lead to the root."""
    others = [node for node in vertices if node != root]
    for above in product(vertices, repeat=len(others)):
        parents = dict(zip(others, above, strict=True))
        if all(_leads(node, parents, root) for node in others):
            yield parents


def _leads(node: str, parents: dict[str, str], root: str) -> bool:
    for _ in range(len(parents)):
        node = parents.get(node, root)
    return node == root


def _paths(topology: Topology, tail: str, head: str, direction: str) -> Iterator[Path]:
    """Simple paths past switches, described away from the root."""
    known = {link[:2] if direction == "broadcast" else link[1::-1] for link in topology.links}
    waiting: list[Path] = [(tail,)]
    while waiting:
        path = waiting.pop()
        for _, node in sorted(pair for pair in known if pair[0] == path[-1] and pair[1] not in path):
            if node == head:
                yield (*path, node)
            elif node in topology.switch_nodes:
                waiting.append((*path, node))


def _loads(topology: Topology, parents: dict[str, str], paths: tuple[Path, ...], direction: str) -> tuple[int, ...]:
    """Copies on each link; nothing if a switch has no way to loop back."""
    places = {link[:2]: place for place, link in enumerate(topology.links)}
    loads = [0] * len(topology.links)
    for (head, tail), path in zip(parents.items(), paths, strict=True):
        children = [node for node, above in parents.items() if above == head]
        hands_on = len(children) > 1 or any(node in topology.switch_nodes for node in children)
        looped = head in topology.loopback and tail in topology.compute_nodes and hands_on
        hops = [pair if direction == "broadcast" else pair[::-1] for pair in pairwise(path)]
        for pair in [*hops, *(hop[::-1] for hop in hops if looped)]:
            if pair not in places:
                return ()
            loads[places[pair]] += 1
    return tuple(loads)
