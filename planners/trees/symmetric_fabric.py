"""Routes from the first of equal parts to all others through the switches between them, with even loads.

Candidates are shortest routes, drawn at random where there are several.  Each pair takes the one that keeps the orbits
of its links emptiest, and is routed again in further rounds.  This is a heuristic: what it misses is the
gap of the plan, which is exact.
"""

from typing import NamedTuple

import numpy as np

from ...errors import UnsupportedError
from ...support.arrays import BoolArray, FloatArray, IntArray, distances_from, places_of
from ...support.kernels import kernel
from .problem import TreeProblem

CANDIDATES = 24
ROUNDS = 6
SEED = 0


class FabricRoutes(NamedTuple):
    """Routes by entry, part and candidate, and the candidate that each tree takes to each part."""

    routes: list[IntArray]  # for each entry int64 (parts, candidates, nodes): switches on the way, -1 after the last
    choices: IntArray  # int64 (trees, parts - 1)
    num_candidates: int  # candidates


def chosen_routes(
    problem: TreeProblem, images: IntArray, entries: list[IntArray], exits: IntArray, orbits: IntArray, products: int
) -> FabricRoutes:
    """Choose routes between the nodes where trees leave the first part and enter the others, `exits` by entry."""
    between = np.ones(problem.num_nodes, dtype=np.bool_)
    between[images.ravel()] = False
    network = _sorted_links(problem)
    ports = sorted({int(entry[0]) for entry in entries})
    by_port = {port: _candidates(network, between, images[:, port], np.random.default_rng(SEED)) for port in ports}
    routes = [by_port[int(entry[0])] for entry in entries]
    width = max(candidates.shape[2] for candidates in routes)
    routes = [
        np.pad(candidates, ((0, 0), (0, 0), (0, width - candidates.shape[2])), constant_values=-1)
        for candidates in routes
    ]
    if all((candidates[:, :1] == candidates).all() for candidates in routes):
        return FabricRoutes([candidates[:, :1] for candidates in routes], np.zeros_like(exits), 1)
    links = np.array(
        [
            _link_orbits(problem, images[:, entry[0]], candidates, orbits)
            for entry, candidates in zip(entries, routes, strict=True)
        ]
    )
    size = np.bincount(orbits)
    room = np.zeros(len(size))
    room[orbits] = problem.capacities
    choices = _balanced(links, exits, room * size / products, ROUNDS)
    return FabricRoutes(routes, choices, CANDIDATES)


class _Network(NamedTuple):
    starts: IntArray  # int64 (nodes + 1,): where the links into each node begin
    tails: IntArray  # int64 (links,): where they come from


def _sorted_links(problem: TreeProblem) -> _Network:
    order = np.argsort(problem.heads, kind="stable")
    starts = np.concatenate([[0], np.cumsum(np.bincount(problem.heads, minlength=problem.num_nodes))])
    return _Network(starts, problem.tails[order])


def _candidates(network: _Network, between: BoolArray, ports: IntArray, random: np.random.Generator) -> IntArray:
    """Draw shortest routes from the port of the first part to those of all others, (parts, candidates, switches)."""
    # Links on the way pass only switches between parts; they end there or at a port.
    heads = np.repeat(np.arange(len(between)), np.diff(network.starts))
    passing, ending = between.copy(), between.copy()
    passing[ports[0]] = ending[ports] = True
    usable = passing[network.tails] & ending[heads]
    hops = distances_from(ports[0], len(between), network.tails[usable], heads[usable])
    if (hops[ports] < 0).any():
        raise UnsupportedError("no route between two parts passes only the switches between them")
    longest = int(hops[ports].max()) - 1
    seeds = random.integers(2**62, size=(len(ports), CANDIDATES))
    return _drawn(*network, hops, ports, seeds, longest)


@kernel
def _drawn(
    starts: IntArray, tails: IntArray, hops: IntArray, ports: IntArray, seeds: IntArray, longest: int
) -> IntArray:
    parts, candidates = seeds.shape
    routes = np.full((parts, candidates, max(longest, 0)), -1, dtype=np.int64)
    for part in range(1, parts):
        for choice in range(candidates):
            # Walk back from the part to the first one, each step at random among nodes that are one hop nearer.
            state = np.uint64(seeds[part, choice])
            node = ports[part]
            for place in range(hops[node] - 2, -1, -1):
                options = 0
                for link in range(starts[node], starts[node + 1]):
                    options += hops[tails[link]] == place + 1
                state = state * np.uint64(6364136223846793005) + np.uint64(1442695040888963407)
                pick = np.int64((state >> np.uint64(33)) % np.uint64(options))
                for link in range(starts[node], starts[node + 1]):
                    if hops[tails[link]] == place + 1:
                        if pick == 0:
                            node = tails[link]
                            break
                        pick -= 1
                routes[part, choice, place] = node
    return routes


def _link_orbits(problem: TreeProblem, ports: IntArray, routes: IntArray, orbits: IntArray) -> IntArray:
    """Orbits of the links on each route, -1 after the last; (parts, candidates, links)."""
    size = problem.num_nodes
    parts, candidates, width = routes.shape
    nodes = np.full((parts, candidates, width + 2), -1)
    nodes[:, :, 0] = ports[0]
    nodes[:, :, 1:-1] = routes
    ends = 1 + (routes >= 0).sum(axis=2)
    np.put_along_axis(nodes, ends[:, :, None], ports[:, None, None], axis=2)
    there = nodes[:, :, 1:] >= 0
    there[0] = False
    keys = (nodes[:, :, :-1] * size + nodes[:, :, 1:])[there]
    link_orbits = np.full(there.shape, -1)
    link_orbits[there] = orbits[places_of(problem.tails * size + problem.heads, keys)]
    return link_orbits


@kernel
def _balanced(links: IntArray, exits: IntArray, room: FloatArray, rounds: int) -> IntArray:
    """Choose candidates one by one; `links` (entries, parts, candidates, links), `exits` (trees, parts - 1)."""
    trees, targets = exits.shape
    choices = np.full((trees, targets), -1, dtype=np.int64)
    loads = np.zeros(len(room), dtype=np.float64)
    for _ in range(rounds):
        for tree in range(trees):
            for other in range(targets):
                options = links[exits[tree, other], other + 1]
                # Take the route of earlier rounds off the links, and choose anew.
                if choices[tree, other] >= 0:
                    _add(loads, options[choices[tree, other]], -1)
                choices[tree, other] = _emptiest(options, loads, room)
                _add(loads, options[choices[tree, other]], 1)
    return choices


@kernel
def _add(loads: FloatArray, orbits: IntArray, amount: int) -> None:
    for orbit in orbits:
        if orbit >= 0:
            loads[orbit] += amount


@kernel
def _emptiest(options: IntArray, loads: FloatArray, room: FloatArray) -> int:
    """Choose the candidate whose fullest orbit is emptiest, then that with least load; (candidates, links)."""
    best, fullest, second = 0, np.inf, np.inf
    for choice in range(len(options)):
        worst, total = 0.0, 0.0
        for orbit in options[choice]:
            if orbit >= 0:
                share = (loads[orbit] + 1) / room[orbit]
                worst = max(worst, share)
                total += share
        if worst < fullest or (worst == fullest and total < second):
            best, fullest, second = choice, worst, total
    return best
