"""Nested groups of ranks: the digits that boxes, pods, groups of routers and tori give."""

import numpy as np
import pytest

from collopt.topologies import (
    Topology,
    complete,
    dgx_a100,
    dgx_h100,
    dragonfly,
    fat_tree,
    gb200_nvl72,
    hamming,
    hypercube,
    leaf_spine,
    mi250,
    mi300x,
    rail,
    ring,
    torus,
)
from collopt.topologies.symmetry.rank_groups import UNREACHED, rank_distances, rank_groups

SIZES = [
    (dgx_a100(boxes=1), (8,)),
    (dgx_a100(boxes=2), (2, 8)),
    (dgx_h100(boxes=4), (4, 8)),
    (mi300x(boxes=4), (4, 8)),
    (mi250(boxes=2), (2, 16)),
    (gb200_nvl72(), (72,)),
    (rail(4), (4, 8)),
    (rail(4, oversubscription=None), (4, 8)),
    (leaf_spine(4, 2, 8), (4, 8)),
    (fat_tree(8), (8, 4, 4)),
    (dragonfly(4, 2, 2), (9, 4, 2)),
    (dragonfly(8, 1, 1, groups=8), (8, 8)),
    (torus(8, 8), (8, 8)),
    (torus(4, 6), (4, 6)),
    (torus(4, 4, 4), (4, 4, 4)),
    (hypercube(3), (2, 2, 2)),
    (hamming(2, 4), (4, 4)),
    (ring(8), (8,)),
    (complete(6), (6,)),
]


def renumbered(topology: Topology, order: list[int]) -> Topology:
    """Return the same network with its ranks in another order."""
    names = [topology.compute_nodes[rank] for rank in order]
    return Topology.from_links(topology.links, compute=names, switches=topology.switch_nodes)


@pytest.mark.parametrize(("topology", "sizes"), SIZES, ids=lambda value: getattr(value, "name", None))
def test_digits_number_the_ranks_of_known_networks(topology: Topology, sizes: tuple[int, ...]) -> None:
    """Digits of the groups that builders make number all ranks in their order."""
    groups = rank_groups(topology)
    assert groups.sizes == sizes
    assert groups.digits.dtype == np.int64
    assert groups.values.tolist() == list(range(topology.num_ranks))
    assert groups.places.tolist() == np.arange(topology.num_ranks).reshape(sizes).tolist()


def test_peers_of_rails_have_the_same_place_in_any_order() -> None:
    """Where rails say who is whose peer, the order of the ranks inside a box does not matter."""
    order = [0, 1, 2, 3, 6, 4, 7, 5, 11, 10, 9, 8]
    network = renumbered(rail(3, gpus_per_box=4), order)
    groups = rank_groups(network)
    assert groups.sizes == (3, 4)
    for rank, name in enumerate(network.compute_nodes):
        box, gpu = name.split("/")
        assert f"box{groups.digits[rank, 0]}" == box
        assert f"gpu{groups.digits[rank, 1]}" == gpu


def test_boxes_whose_ranks_are_interleaved_are_found() -> None:
    """Ranks need not be numbered box by box."""
    groups = rank_groups(renumbered(dgx_a100(boxes=2), [rank // 2 + 8 * (rank % 2) for rank in range(16)]))
    assert groups.sizes == (2, 8)
    assert groups.digits[:4].tolist() == [[0, 0], [1, 0], [0, 1], [1, 1]]


def test_groups_of_different_sizes_are_no_level() -> None:
    """A box with fewer ranks makes the network flat."""
    groups = rank_groups(dgx_h100(boxes=2).without_node("box1/gpu7"))
    assert groups.sizes == (15,)
    assert groups.digits[:, 0].tolist() == list(range(15))


def test_distances_do_not_pass_ranks() -> None:
    """Paths pass switches only, and the longer direction counts."""
    links = [("a", "s", 1), ("s", "b", 1), ("b", "a", 1), ("b", "c", 1), ("c", "b", 1)]
    distances = rank_distances(Topology.from_links(links, compute="abc", switches="s"))
    assert distances.tolist() == [[0, 2, UNREACHED], [2, 0, 1], [UNREACHED, 1, 0]]
