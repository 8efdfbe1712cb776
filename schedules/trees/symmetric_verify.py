"""Check of a symmetric forest without writing down all its trees.

It reads the arrays and the topology's links and nothing else.  Generators that commute make at most as many products as
their orders multiply to; if every orbit of ranks has that many members, these products are different, and only the
identity fixes a rank.  So each rank is the image of one representative under one product, and the load of all trees on
a link follows from those of the representatives on its orbit; docs/explanation/symmetry.md has the proof.
"""

from itertools import combinations
from math import prod

import numpy as np

from ...errors import CertificateError
from ...support.arrays import IntArray, orbits
from ...topologies import Topology
from ..paths.schedule import verified_loads
from ..paths.verify import check_kinds, refuse_if
from .symmetric_forest import SymmetricAllreduce, SymmetricForest
from .verify import LOAD_LIMIT, check_halves, summed_loads, verified_forest


@verified_loads.register(SymmetricForest)
def _verified_images(schedule: SymmetricForest, topology: Topology) -> IntArray:
    """Verify a symmetric forest on a topology, and sum the load of all its trees on every link; int64 (links,).

    Checked: what `verified_forest` checks of the trees of representatives; the generators are commuting permutations
    that keep ranks, links, bandwidths and latencies; every orbit of ranks has as many members as there are products,
    and one representative.
    """
    check_kinds(schedule, SymmetricForest, topology)
    ranks, base = topology.num_ranks, schedule.base
    images = _checked_generators(schedule.generators, topology)
    loads = verified_forest(base, topology)
    if len(base.switches):
        raise CertificateError("trees of a symmetric forest branch at switches; expected trees that branch at ranks")
    size = prod(_order(generator) for generator in schedule.generators)
    of_ranks = orbits(schedule.generators[:, :ranks])
    members = np.bincount(of_ranks)
    refuse_if(members != size, f"orbit {{}} of ranks does not have as many members as the group, {size}")
    refuse_if((base.root_weights != 0) & (base.root_weights != 1), "rank {} has a shard of a weight other than 0 and 1")
    written = np.bincount(of_ranks, weights=base.root_weights).astype(np.int64)
    refuse_if(written != 1, "orbit {} of ranks does not have exactly one representative")
    if int(base.weights.sum()) * ranks * size >= LOAD_LIMIT:
        raise CertificateError(f"{base.trees_per_root} trees per root could overflow the 64-bit sums of this check")
    link_orbits = orbits(images)
    sums = np.zeros(link_orbits.max() + 1, dtype=np.int64)
    np.add.at(sums, link_orbits, loads)
    return np.asarray((sums * size // np.bincount(link_orbits))[link_orbits])


@verified_loads.register(SymmetricAllreduce)
def _verified_allreduce_loads(schedule: SymmetricAllreduce, topology: Topology) -> IntArray:
    """Verify both parts of an allreduce; sum their load on every link."""
    check_halves(schedule.reduce, schedule.broadcast, SymmetricForest)
    halves = schedule.reduce, schedule.broadcast
    return summed_loads([each.trees_per_root for each in halves], [verified_loads(each, topology) for each in halves])


def _checked_generators(generators: IntArray, topology: Topology) -> IntArray:
    """Check that generators are symmetries, and commute; return the image of each link, (generators, links)."""
    size, (tails, heads, kinds, _) = len(topology.nodes), topology.columns
    if generators.dtype != np.int64 or generators.ndim != 2 or generators.shape[1] != size:
        raise CertificateError(
            f"the generators are {generators.dtype} of shape {generators.shape}; expected int64 (generators, {size})"
        )
    if len(generators) >= topology.num_ranks.bit_length():
        raise CertificateError(f"{len(generators)} generators have too many products for {topology.num_ranks} ranks")
    images = np.empty((len(generators), len(tails)), dtype=np.int64)
    for row, generator in enumerate(generators):
        what = f"generator {row} of the symmetric forest"
        if (np.sort(generator) != np.arange(size)).any():
            raise CertificateError(f"{what} is no permutation of the nodes")
        if (generator[: topology.num_ranks] >= topology.num_ranks).any():
            raise CertificateError(f"{what} takes a rank to a switch")
        if generator[0] == 0:
            raise CertificateError(f"{what} fixes rank 0")
        place = topology.link_places(generator[tails], generator[heads])
        if (place < 0).any():
            raise CertificateError(f"{what} takes a link to where the topology has none")
        if (kinds[place] != kinds).any():
            raise CertificateError(f"{what} takes a link to one of another bandwidth or latency")
        images[row] = place
    for one, other in combinations(range(len(generators)), 2):
        if (generators[one][generators[other]] != generators[other][generators[one]]).any():
            raise CertificateError(f"generators {one} and {other} of the symmetric forest do not commute")
    return images


def _order(generator: IntArray) -> int:
    """Return the order of a permutation that fixes no rank but with all nodes, or raise."""
    node, order = int(generator[0]), 1
    while node != 0:
        node, order = int(generator[node]), order + 1
    power, rest, squared = np.arange(len(generator)), order, generator
    while rest:
        power = squared[power] if rest % 2 else power
        squared, rest = squared[squared], rest // 2
    if (power != np.arange(len(generator))).any():
        raise CertificateError(
            f"a generator of the symmetric forest, taken {order} times, fixes rank 0 but not all nodes"
        )
    return order
