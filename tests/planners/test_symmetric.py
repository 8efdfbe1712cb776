"""Plans by symmetries: their loads are those of all trees, their bounds those of the general planner."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import collopt
from collopt import topologies
from collopt.errors import CertificateError, FileFormatError, UnsupportedError
from collopt.schedules import Forest, SymmetricForest, rank_transfers, verified_loads
from collopt.topologies import Topology
from sample_sizes import examples

DIRECT = {
    "ring": topologies.ring(6),
    "one-way": topologies.ring(7, bidirectional=False),
    "torus": topologies.torus(3, 4, 5),
    "torus-2": topologies.torus(2, 3, 4),
    "hypercube": topologies.hypercube(5),
    "circulant": topologies.circulant(98, [23, 26]),
    "hamming": topologies.hamming(2, 4),
    "twisted": topologies.twisted_torus(4, 8),
}
SWITCHED = {
    "a100": topologies.dgx_a100(4),
    "h100": topologies.dgx_h100(5),
    "mi250": topologies.mi250(4),
    "mi300x": topologies.mi300x(8),
    "rails": topologies.rail(8, oversubscription=None),
    "spine": topologies.rail(8, oversubscription=4),
    "fat-tree": topologies.fat_tree(4),
    "fat-tree-8": topologies.fat_tree(8),
    "oversubscribed": topologies.fat_tree(8, oversubscription=4),
    "leaf-spine": topologies.leaf_spine(4, 3, 4, oversubscription=2),
}
ROUTED = {
    "dragonfly": topologies.dragonfly(4, 2, 2),
    "dragonfly-8": topologies.dragonfly(8, 4, 4, groups=9),
    "few-groups": topologies.dragonfly(4, 2, 2, groups=5, oversubscription=32),
    "slow-global": topologies.dragonfly(4, 2, 2, oversubscription=8),
    "routers": topologies.torus(4, 4, routers=True),
}
NETWORKS = DIRECT | SWITCHED | ROUTED
STAR = [(f"host{rank}", "switch", 1) for rank in range(4)]
NETWORKS["star"] = Topology.from_links(STAR, compute=[row[0] for row in STAR], switches=["switch"], bidirectional=True)


@pytest.mark.parametrize("collective", ["allgather", "reduce_scatter", "allreduce"])
@pytest.mark.parametrize("name", NETWORKS)
def test_reaches_the_bound_with_the_loads_of_all_trees(name: str, collective: str) -> None:
    """Plans are optimal, and their loads are those of all trees, written down and checked one by one."""
    network = NETWORKS[name]
    made = collopt.plan(network, collective, planner="symmetric")
    assert made.gap == 0
    assert made.bound.inverse_rate == collopt.bound(network, collective).inverse_rate
    assert np.array_equal(verified_loads(made.schedule.expanded, network), made.link_loads)


@given(
    seed=st.integers(0, 2**32 - 1),
    name=st.sampled_from(["torus", "hypercube", "circulant", "a100", "fat-tree-8", "dragonfly"]),
)
@settings(max_examples=examples(6), deadline=None)
def test_finds_symmetries_of_networks_in_any_order(seed: int, name: str) -> None:
    """Neither names nor numbers of nodes and links say what is symmetric."""
    network = NETWORKS[name]
    random = np.random.default_rng(seed)
    ranks, switches = (list(random.permutation(nodes)) for nodes in (network.compute_nodes, network.switch_nodes))
    links = [network.links[place] for place in random.permutation(len(network.links))]
    shuffled = Topology.from_links(links, compute=map(str, ranks), switches=map(str, switches))
    assert collopt.plan(shuffled, "allgather", planner="symmetric").gap == 0


@given(
    sizes=st.lists(st.integers(2, 5), min_size=1, max_size=3),
    bandwidths=st.lists(st.integers(1, 4), min_size=3, max_size=3),
)
@settings(max_examples=examples(15), deadline=None)
def test_plans_tori_whose_dimensions_differ_in_bandwidth(sizes: list[int], bandwidths: list[int]) -> None:
    """Tori of any sides and bandwidths are planned without a gap, or refused."""
    places = np.arange(np.prod(sizes)).reshape(sizes)
    links = [
        (int(rank), int(peer), bandwidth)
        for axis, bandwidth in enumerate(bandwidths[: len(sizes)])
        for way in (1, -1)
        for rank, peer in zip(places.ravel(), np.roll(places, way, axis).ravel(), strict=True)
    ]
    network = Topology.from_links(links, compute=range(places.size))
    try:
        made = collopt.plan(network, "allgather", planner="symmetric")
    except UnsupportedError:
        return
    assert made.gap == 0
    assert np.array_equal(verified_loads(made.schedule.expanded, network), made.link_loads)


def test_one_rank_is_lowered_without_the_others() -> None:
    """What a rank sends and receives is what the trees of all roots say."""
    for network in (NETWORKS["mi250"], NETWORKS["torus"], NETWORKS["oversubscribed"], NETWORKS["dragonfly"]):
        schedule = collopt.plan(network, "allgather", planner="symmetric").schedule
        assert isinstance(schedule, SymmetricForest)
        trees = schedule.expanded
        edges = {(int(root), parent, rank) for root, parents in zip(trees.roots, trees.parents, strict=True)
                 for rank, parent in enumerate(parents.tolist()) if parent >= 0}  # fmt: skip
        for rank in (0, 7, network.num_ranks - 1):
            found = rank_transfers(schedule, rank)
            above = {
                (root, peer, rank) for root, peer in zip(*(each.tolist() for each in found.above[::2]), strict=True)
            }
            below = {
                (root, rank, peer) for root, peer in zip(*(each.tolist() for each in found.below[::2]), strict=True)
            }
            assert above == {edge for edge in edges if edge[2] == rank}
            assert below == {edge for edge in edges if edge[1] == rank}
            assert (
                len(found.above.roots)
                == (network.num_ranks - 1) * schedule.base.num_trees // schedule.num_representatives
            )


@pytest.mark.parametrize("name", ["torus", "a100", "fat-tree"])
@pytest.mark.parametrize("collective", ["allgather", "allreduce"])
def test_files_give_the_same_plan(name: str, collective: str, tmp_path: Path) -> None:
    """A plan file is read back as it was written, and simulates alike."""
    made = collopt.plan(NETWORKS[name], collective, planner="symmetric")
    path = tmp_path / "plan.json"
    made.save(path)
    read = collopt.load_plan(path)
    assert read.to_json() == made.to_json()
    assert read.simulate("1M", slices=1) == made.simulate("1M", slices=1)


def test_refuses_a_file_whose_permutations_were_changed(tmp_path: Path) -> None:
    """Wrong counts and lost arrays are named with the file."""
    made = collopt.plan(NETWORKS["torus"], "allgather", planner="symmetric")
    path = tmp_path / "plan.json"
    made.save(path)
    document = json.loads(path.read_text())
    for name, value in (
        ("num_generators", 2),
        ("num_trees", 10**9),
        ("routes", {}),
        ("num_nodes", 0),
        ("num_path_nodes", 2**20),
    ):
        changed = document | {"schedule": document["schedule"] | {name: value}}
        path.write_text(json.dumps(changed))
        with pytest.raises(FileFormatError, match=r"plan\.json"):
            collopt.load_plan(path)


def _broken(schedule: SymmetricForest, random: np.random.Generator) -> SymmetricForest:
    """Change one thing that the certificate rests on."""
    generators, base = schedule.generators.copy(), schedule.base
    row = int(random.integers(len(generators)))
    match int(random.integers(8)):
        case 0:  # two images exchanged
            one, other = random.choice(generators.shape[1], 2, replace=False)
            generators[row, [one, other]] = generators[row, [other, one]]
        case 1:  # an image written twice
            generators[row, random.integers(generators.shape[1])] = generators[row, 0]
        case 2:
            generators[row] = np.arange(generators.shape[1])
        case 3:  # a power whose order is smaller
            generators[row] = generators[row][generators[row]]
            if SymmetricForest(base, generators).orbits.max() == schedule.orbits.max():  # the same group
                generators = np.delete(generators, row, axis=0)
        case 4:
            generators = np.delete(generators, row, axis=0)
        case 5:
            generators = np.concatenate([generators, generators[row : row + 1]])
        case 6:  # a shard of another weight
            weights = base.root_weights.copy()
            weights[random.integers(len(weights))] += 1
            base = replace(base, root_weights=weights)
        case _:  # a rank that receives on a path of another one
            routes = base.routes.copy()
            tree, rank = np.argwhere(routes >= 0)[random.integers((routes >= 0).sum())]
            routes[tree, rank] = random.integers(-1, len(base.path_starts) - 1)
            if (routes == base.routes).all():
                routes[tree, rank] = -1
            base = replace(base, routes=routes)
    return SymmetricForest(base, generators)


@pytest.mark.parametrize("name", ["torus", "circulant", "a100", "mi250", "fat-tree-8", "oversubscribed", "dragonfly"])
def test_refuses_broken_certificates(name: str) -> None:
    """Whatever is changed in a certificate, it is refused."""
    network = NETWORKS[name]
    made = collopt.plan(network, "allgather", planner="symmetric")
    assert isinstance(made.schedule, SymmetricForest)
    random = np.random.default_rng(0)
    for _ in range(50):
        broken = replace(made, schedule=_broken(made.schedule, random))
        with pytest.raises(CertificateError):
            broken.verify()


def test_refuses_symmetries_that_do_not_keep_bandwidths() -> None:
    """One wider link makes a symmetry none."""
    made = collopt.plan(topologies.torus(4, 4), "allgather", planner="symmetric")
    links = [link._replace(bandwidth=link.bandwidth + (number == 3)) for number, link in enumerate(made.topology.links)]
    uneven = Topology.from_links(links, compute=made.topology.compute_nodes)
    with pytest.raises(CertificateError, match="another bandwidth"):
        verified_loads(made.schedule, uneven)


def test_refuses_a_group_that_fixes_a_rank() -> None:
    """A reflection of a ring is a symmetry, but no certificate."""
    network = topologies.ring(4)
    reflection = np.array([[0, 3, 2, 1]])
    base = Forest.from_paths(4, 1, [(0, 1, [(0, 1), (1, 2), (2, 3)])], root_weights=[1, 0, 0, 0])
    with pytest.raises(CertificateError, match="fixes rank 0"):
        verified_loads(SymmetricForest(base, reflection), network)


def test_the_bound_of_an_allreduce_is_the_best_one_known() -> None:
    """Also where the parts whose cuts bind an allgather are not those that bind an allreduce."""
    pairs = [Topology.from_links([(0, 1, 4), (1, 0, 4)], compute=range(2))]
    uneven = [(rank, (rank + 2) % 40, 1) for rank in range(40)] + [(rank, rank ^ 1, 4) for rank in range(0, 40, 2)]
    pairs.append(Topology.from_links(uneven, compute=range(40), bidirectional=True))
    leaves = [(f"h{leaf}", f"l{leaf}", 10) for leaf in range(5)]
    leaves += [(f"l{leaf}", f"s{spine}", 10) for leaf in range(5) for spine in range(2)]
    names = [f"{kind}{number}" for kind, count in (("h", 5), ("l", 5), ("s", 2)) for number in range(count)]
    pairs.append(Topology.from_links(leaves, compute=names[:5], switches=names[5:], bidirectional=True))
    for network in pairs:
        made = collopt.plan(network, "allreduce", planner="symmetric")
        assert made.bound.inverse_rate == collopt.bound(network, "allreduce").inverse_rate


def test_ranks_run_all_trees() -> None:
    """The trees of all roots are lowered and give the right sums."""
    made = collopt.plan(topologies.torus(3, 3), "allreduce", planner="symmetric")
    assert collopt.runtime.run_program(collopt.runtime.lower(made.schedule, "allreduce")) is not None


def test_hosts_of_a_dragonfly_need_one_tree_per_router_of_a_group() -> None:
    """Groups and hosts are turned, so one host of each router of a group stands for all."""
    made = collopt.plan(topologies.dragonfly(8, 4, 4), "allgather", planner="symmetric")
    assert made.gap == 0
    assert isinstance(made.schedule, SymmetricForest)
    assert made.schedule.num_representatives == 8


@pytest.mark.slow
@pytest.mark.parametrize("collective", ["allgather", "allreduce"])
@pytest.mark.parametrize(
    "network",
    [
        topologies.dgx_a100(16384),
        topologies.torus(16, 16, 16),
        topologies.fat_tree(16),
        topologies.dragonfly(32, 16, 8),
    ],
    ids=str,
)
def test_plans_many_ranks(network: Topology, collective: str) -> None:
    """131,072 GPUs in boxes, a torus of 4096, a fat tree of 1024 hosts and a dragonfly of 131,584."""
    made = collopt.plan(network, collective, planner="symmetric")
    assert made.gap == 0
