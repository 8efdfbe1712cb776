"""Trees that branch at switches: loads, the same trees sent from rank to rank, files, and what checks refuse."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from collopt.errors import CertificateError
from collopt.schedules import Allreduce, Forest, schedule_from_json, schedule_to_json, verified_loads
from collopt.topologies import SwitchLimits, Topology


def star(ranks: int = 4, **abilities: Any) -> Topology:
    """Ranks around one switch, whose number is that of the ranks."""
    names = [f"r{rank}" for rank in range(ranks)]
    given = {"multicast": "s", "aggregation": "s"} | abilities
    return Topology.from_links(
        [(name, "s", 10) for name in names], compute=names, switches="s", bidirectional=True, **given
    )


def star_forest(ranks: int = 4, direction: Any = "broadcast") -> Forest:
    """One tree for each root, which the switch branches."""
    trees = [
        (root, 1, [(root, ranks), *((ranks, rank) for rank in range(ranks) if rank != root)]) for root in range(ranks)
    ]
    return Forest.from_paths(ranks, 1, trees, direction=direction, switches=[ranks])


def test_the_switch_copies_and_adds() -> None:
    """Every rank sends each shard of its own once, and receives the others; reductions are the other way round."""
    network = star()
    up = [link.head == "s" for link in network.links]
    for direction, loads in (("broadcast", np.where(up, 1, 3)), ("reduce", np.where(up, 3, 1))):
        forest = star_forest(direction=direction)
        assert forest.link_loads(network).tolist() == verified_loads(forest, network).tolist() == loads.tolist()
        assert (forest.depth, forest.latency(network)) == (1, 0)


def test_an_allreduce_in_one_switch_reaches_the_link() -> None:
    """4 units cross every link once in 4 / 10 of a second per unit, which is the bandwidth of a link."""
    schedule = Allreduce(star_forest(direction="reduce"), star_forest())
    assert schedule.total_weight / schedule.inverse_rate(star()) == 10
    loop = star(limits=[SwitchLimits("s", loopback=True)])
    assert schedule.total_weight / schedule.inverse_rate(loop) == 8  # n / (n + 1)
    assert verified_loads(schedule, loop).tolist() == schedule.link_loads(loop).tolist() == [5] * 8


def test_a_switch_with_one_child_loops_nothing_back() -> None:
    """It passes data on."""
    chain = Forest.from_paths(2, 1, [(0, 1, [(0, 2), (2, 1)]), (1, 1, [(1, 2), (2, 0)])], switches=[2])
    loop = star(2, limits=[SwitchLimits("s", loopback=True)])
    assert verified_loads(chain, loop).tolist() == chain.link_loads(loop).tolist() == [1] * 4


def test_tidy_trees_pass_switches_that_do_not_branch() -> None:
    """A switch with one child or none becomes part of a path."""
    trees = [(0, 1, [(0, 3), (3, 1), (1, 3, 2)]), (0, 1, [(0, 3, 1), (1, 3, 2), (0, 3)])]
    forest = Forest.from_paths(3, 2, trees, root_weights=[1, 0, 0], switches=[3])
    tidy = forest.tidied()
    assert tidy.switches.tolist() == []
    assert [edge.path for tree in (0, 1) for edge in tidy.edges(tree)] == [(0, 3, 1), (1, 3, 2)] * 2
    verified_loads(tidy, star(3))


def test_tidy_trees_stay_as_they_are() -> None:
    """Tidying removes branches without ranks, but no switch in front of another one that branches."""
    assert [*star_forest().tidied().edges(2)] == [*star_forest().edges(2)]
    network = Topology.from_links(
        [("a", "s", 1), ("s", "t", 1), ("t", "b", 1), ("t", "c", 1), ("s", "u", 1), ("u", "v", 1)],
        compute="abc",
        switches="stuv",
        bidirectional=True,
        multicast="st",
    )
    tree = [(0, 3), (3, 4), (4, 1), (4, 2), (3, 5), (5, 6)]
    forest = Forest.from_paths(3, 1, [(0, 1, tree)], root_weights=[1, 0, 0], switches=[3, 4, 5, 6]).tidied()
    assert forest.switches.tolist() == [3, 4]
    assert [edge.path for edge in forest.edges(0)] == [(0, 3), (3, 4), (4, 1), (4, 2)]
    verified_loads(forest, network)


def test_a_switch_in_front_of_another_one_loops_back() -> None:
    """Or it could hide the rank from the loop of the next one; in front of a rank it passes data on."""
    network = Topology.from_links(
        [("a", "s", 1), ("b", "s", 1), ("s", "t", 1), ("c", "t", 1), ("d", "t", 1)],
        compute="abcd",
        switches="st",
        bidirectional=True,
        multicast="st",
        limits=[SwitchLimits("s", loopback=True), SwitchLimits("t", loopback=True)],
    )
    back = network.links.index(network.link("s", "a"))
    for paths, copies in (
        ([(0, 4), (4, 5), (5, 2), (5, 3), (2, 5, 4, 1)], 1),
        ([(0, 4), (4, 1), (1, 4, 5), (5, 2), (5, 3)], 0),
    ):
        forest = Forest.from_paths(4, 1, [(0, 1, paths)], root_weights=[1, 0, 0, 0], switches=[4, 5])
        loads = forest.link_loads(network)
        assert verified_loads(forest, network).tolist() == loads.tolist()
        assert loads[back] == copies


def test_the_same_trees_run_from_rank_to_rank() -> None:
    """Without branching, every path from the root passes the switch."""
    unicast = star_forest().unicast
    assert verified_loads(unicast, star()).tolist() == [3] * 8
    assert sorted(unicast.path(path) for path in range(12)) == sorted(
        (root, 4, rank) for root in range(4) for rank in range(4) if rank != root
    )
    assert unicast.unicast is unicast


def test_loops_are_cut_off_where_paths_are_joined() -> None:
    """Rank 0 reaches switch 3 through switch 2, which the path back would pass again."""
    network = Topology.from_links(
        [(0, 2, 1), (1, 2, 1), (2, 3, 1), (3, 4, 1)],
        compute=[0, 1, 4],
        switches=[2, 3],
        bidirectional=True,
        multicast=["3"],
    )
    forest = Forest.from_paths(3, 1, [(0, 1, [(0, 3, 4), (4, 3, 1), (4, 2)])], root_weights=[1, 0, 0], switches=[4])
    verified_loads(forest, network)
    assert {forest.unicast.path(path) for path in range(2)} == {(0, 3, 1), (0, 3, 4, 2)}


def test_trees_may_leave_switches_out() -> None:
    """The second tree sends from rank to rank."""
    trees = [(0, 1, [(0, 3), (3, 1), (3, 2)]), (0, 1, [(0, 3, 1), (1, 3, 2)])]
    forest = Forest.from_paths(3, 2, trees, root_weights=[1, 0, 0], switches=[3])
    assert forest.link_loads(star(3)).tolist() == verified_loads(forest, star(3)).tolist()
    assert [edge.path for edge in forest.edges(0)] == [(0, 3), (3, 1), (3, 2)]
    assert [edge.path for edge in forest.edges(1)] == [(0, 3, 1), (1, 3, 2)]
    assert forest.depths.tolist() == [[0, 1, 1], [0, 1, 2]]


def test_files_keep_switches() -> None:
    """Files of forests without branching switches have no such field."""
    data = json.loads(json.dumps(schedule_to_json(star_forest())))
    again = schedule_from_json(data, "here")
    assert again.switches.tolist() == [4]
    assert again.routes.tolist() == star_forest().routes.tolist()
    assert "switches" not in schedule_to_json(star_forest().unicast)


CHAIN = [(0, 1, [(0, 3), (3, 1), (3, 2)])]
ROOTED = {"root_weights": [1, 0, 0]}


@pytest.mark.parametrize(
    ("network", "forest", "message"),
    [
        (star(3, multicast=[]), Forest.from_paths(3, 1, CHAIN, switches=[3], **ROOTED), "'s', which cannot multicast"),
        (
            star(3, aggregation=[]),
            Forest.from_paths(3, 1, CHAIN, direction="reduce", switches=[3], **ROOTED),
            "'s', which cannot aggregate",
        ),
        (
            star(3, limits=[SwitchLimits("s", group=2)]),
            Forest.from_paths(3, 1, CHAIN, switches=[3], **ROOTED),
            "tree 0 joins more than 2 neighbors of switch 's'",
        ),
        (
            star(3),
            Forest.from_paths(3, 1, CHAIN, switches=[3, 2], **ROOTED),
            "number 1 of the forest's switches is not a switch",
        ),
        (
            star(3),
            Forest.from_paths(3, 1, CHAIN, switches=[3, 9], **ROOTED),
            "number 1 of the forest's switches is not a switch",
        ),
        (
            star(3),
            Forest.from_paths(3, 1, [(0, 1, [(3, 1), (3, 2)])], switches=[3], **ROOTED),
            "tree 0 does not reach rank 1",
        ),
        (
            star(3),
            Forest.from_paths(3, 1, [(0, 1, [(1, 3), (3, 1), (3, 2)])], switches=[3], **ROOTED),
            "tree 0 does not reach rank 1",
        ),
        (star(3), Forest.from_paths(3, 1, [(0, 1, [(0, 3), (3, 1)])], switches=[3], **ROOTED), "not deliver to rank 2"),
        (star(3), Forest.from_paths(3, 1, [(0, 1, [(0, 3, 1), (3, 2)])], **ROOTED), "does not run from a rank"),
    ],
)
def test_wrong_trees_are_refused(network: Topology, forest: Forest, message: str) -> None:
    """The verification names the fault of a branching tree."""
    with pytest.raises(CertificateError, match=message):
        verified_loads(forest, network)


def test_a_loop_needs_the_way_back() -> None:
    """A switch with loopback needs links back to the rank above."""
    network = Topology.from_links(
        [("a", "s", 1), ("s", "b", 1), ("s", "c", 1), ("b", "a", 1), ("c", "a", 1)],
        compute="abc",
        switches="s",
        multicast="s",
        limits=[SwitchLimits("s", loopback=True)],
    )
    forest = Forest.from_paths(3, 1, CHAIN, switches=[3], **ROOTED)
    with pytest.raises(CertificateError, match="needs a link from 's' to 'a'"):
        verified_loads(forest, network)


def test_a_switch_listed_twice_is_refused() -> None:
    """Its data could be counted once for each."""
    forest = Forest.from_paths(3, 1, CHAIN, switches=[3], **ROOTED)
    twice = Forest(
        3,
        1,
        forest.roots,
        forest.weights,
        np.hstack([forest.routes, forest.routes[:, 3:]]),
        forest.path_starts,
        forest.path_nodes,
        forest.root_weights,
        "broadcast",
        np.array([3, 3]),
    )
    with pytest.raises(CertificateError, match="lists a switch twice"):
        verified_loads(twice, star(3))
