"""The checker against forests that are broken in one way each, and against a slow checker on random ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from collopt.errors import CertificateError
from collopt.planners import plan
from collopt.schedules import Allreduce, Forest, verified_loads
from collopt.topologies import SwitchLimits, Topology, ring
from oracles.slow_check import forest_holds, loads_of
from sample_sizes import examples
from strategies import eulerian_topologies

COMPILING = [HealthCheck.too_slow]
"""The first example that is drawn may have to wait for numba."""
TOPOLOGY = Topology.from_links(
    [("a", "s", 2), ("b", "s", 2), ("c", "s", 2), ("s", "t", 1), ("a", "b", 1)],
    compute=["a", "b", "c"],
    switches=["s", "t"],
    bidirectional=True,
)
"""Ranks a, b, c are nodes 0, 1, 2; switches s, t are 3, 4.  There is no link between c and a or b."""
PATHS = [(0, 1), (1, 0), (0, 3, 2), (1, 3, 2), (2, 3, 0), (2, 3, 1)]


def forest(**changes: Any) -> Forest:
    """A correct forest of two trees per root (those of rank b are two different ones), with some arrays replaced."""
    trees = [(0, 2, [0, 2]), (1, 1, [1, 3]), (1, 1, [1, 2]), (2, 2, [4, 5])]
    made = Forest.from_paths(3, 2, [(root, weight, [PATHS[path] for path in paths]) for root, weight, paths in trees])
    assert [made.path(number) for number in range(6)] == [PATHS[number] for number in (0, 2, 1, 3, 4, 5)]
    return replace(made, **changes)


def with_path(number: int, nodes: tuple[int, ...]) -> Forest:
    """The forest with another path in place of one."""
    old = forest()
    paths = [old.path(path) for path in range(6)]
    paths[number] = nodes
    starts = np.cumsum([0, *map(len, paths)])
    return replace(old, path_starts=starts, path_nodes=np.array([node for path in paths for node in path]))


def with_route(tree: int, rank: int, route: int) -> Forest:
    """The forest with another route to one rank of one tree."""
    routes = forest().routes.copy()
    routes[tree, rank] = route
    return forest(routes=routes)


def changed(name: str, place: int, value: int) -> Forest:
    """The forest with one entry of an array replaced."""
    array = getattr(forest(), name).copy()
    array[place] = value
    return forest(**{name: array})


def with_cycle() -> Forest:
    """The forest with ranks a and b of the last tree sending to each other."""
    routes = forest().routes.copy()
    routes[3, :2] = 2, 0
    return forest(routes=routes)


def without_tree(number: int) -> Forest:
    """The forest with one tree left out."""
    old = forest()
    return forest(**{name: np.delete(getattr(old, name), number, axis=0) for name in ("roots", "weights", "routes")})


def test_loads_of_a_correct_forest() -> None:
    """Added up by hand."""
    loads = dict(zip([link[:2] for link in TOPOLOGY.links], verified_loads(forest(), TOPOLOGY).tolist(), strict=True))
    assert loads == {
        ("a", "b"): 2,
        ("b", "a"): 2,
        ("a", "s"): 2 + 1,
        ("b", "s"): 1,
        ("c", "s"): 2 + 2,
        ("s", "a"): 2,
        ("s", "b"): 2,
        ("s", "c"): 2 + 1 + 1,
        ("s", "t"): 0,
        ("t", "s"): 0,
    }
    assert loads_of(forest(), TOPOLOGY) == list(loads.values())


Case = tuple[Callable[[], Forest], str]

BAD_SHAPES: dict[str, Case] = {
    "another number of ranks": (lambda: forest(num_ranks=4), "the forest is for 4 ranks; the topology has 3$"),
    "no trees per root": (lambda: forest(trees_per_root=0), "the forest has 4 trees and 0 per root; expected at"),
    "no trees": (
        lambda: forest(roots=np.zeros(0, np.int64), weights=np.zeros(0, np.int64), routes=np.zeros((0, 3), np.int32)),
        "the forest has 0 trees and 2 per root; expected at least 1$",
    ),
    "weights as floats": (lambda: forest(weights=np.ones(4)), r"the forest's weights are float64 of shape \(4,\);"),
    "a weight too many": (lambda: forest(weights=np.ones(5, np.int64)), r"the forest's weights are int64 of shape"),
    "routes of two ranks": (lambda: forest(routes=forest().routes[:, :2]), "the forest's routes are int32 of"),
    "routes as wide integers": (lambda: forest(routes=forest().routes.astype(np.int64)), "the forest's routes are"),
    "path nodes in two dimensions": (
        lambda: forest(path_nodes=forest().path_nodes[:, None]),
        r"the forest's path_nodes are int64 of shape \(16, 1\); expected int64, \(16,\)$",
    ),
    "path starts as short integers": (
        lambda: forest(path_starts=forest().path_starts.astype(np.int16)),
        r"the forest's path_starts are int16 of shape \(7,\); expected int64, \(7,\)$",
    ),
    "a shard too few": (lambda: forest(root_weights=np.ones(2, np.int64)), "the forest's root_weights are int64 of"),
    "a shard below nothing": (lambda: changed("root_weights", 1, -1), "the shard of rank 1 has a weight below 0$"),
    "a direction that is none": (lambda: forest(direction="sideways"), "the forest's direction is 'sideways';"),
    "roots as booleans": (lambda: forest(roots=np.ones(4, np.bool_)), "the forest's roots are bool of shape"),
}

BAD_TREES: dict[str, Case] = {
    "a root beyond the ranks": (lambda: changed("roots", 3, 3), "tree 3 has a root that is not a rank$"),
    "a negative root": (lambda: changed("roots", 1, -1), "tree 1 has a root that is not a rank$"),
    "a weight of nothing": (lambda: changed("weights", 2, 0), "tree 2 has a weight below 1$"),
    "a negative weight": (lambda: changed("weights", 0, -2), "tree 0 has a weight below 1$"),
    "a copy too many": (lambda: changed("weights", 2, 2), "the trees of root 1 weigh 3 together; expected 2$"),
    "a copy too few": (lambda: changed("weights", 3, 1), "the trees of root 2 weigh 1 together; expected 2$"),
    "a missing tree": (lambda: without_tree(3), "the trees of root 2 weigh 0 together; expected 2$"),
    "a larger shard": (lambda: changed("root_weights", 0, 2), "the trees of root 0 weigh 2 together; expected 4$"),
    "a shard of nothing": (lambda: changed("root_weights", 2, 0), "the trees of root 2 weigh 2 together; expected 0$"),
    "weights that wrap around to the right sum": (
        lambda: forest(weights=np.array([2, 2**63 - 1, 2**63 - 1, 2])),
        f"the trees of root 1 weigh {2**64 - 2} together; expected 2$",
    ),
    "a root that receives": (lambda: with_route(2, 1, 0), "the root of tree 2 receives: rank 1$"),
    "a root marked otherwise": (lambda: with_route(2, 1, -2), "the root of tree 2 receives: rank 1$"),
    "a rank that gets nothing": (lambda: with_route(3, 0, -1), "tree 3 does not deliver to rank 0$"),
    "a path that does not exist": (lambda: with_route(3, 0, 6), "tree 3 does not deliver to rank 0$"),
    "a path to another rank": (lambda: with_route(0, 1, 1), "in tree 0 the path to rank 1 ends elsewhere$"),
    "ranks that send to each other": (with_cycle, "tree 3 does not reach rank 0 from its root$"),
    "more trees than can be added up": (
        lambda: forest(trees_per_root=2**61, weights=np.array([2**61, 2**60, 2**60, 2**61])),
        f"{2**61} trees per root could overflow the 64-bit sums of this check$",
    ),
}

BAD_PATHS: dict[str, Case] = {
    "paths that start late": (lambda: changed("path_starts", 0, 1), "the forest's path_starts do not cut its"),
    "paths that end early": (lambda: changed("path_starts", -1, 14), "the forest's path_starts do not cut"),
    "a path of one node": (lambda: changed("path_starts", 1, 1), "the forest's path_starts do not cut"),
    "paths that overlap": (lambda: changed("path_starts", 1, 5), "the forest's path_starts do not cut"),
    "no path": (
        lambda: forest(path_starts=np.zeros(1, np.int64), path_nodes=np.zeros(0, np.int64)),
        "the forest's path_starts do not cut its path_nodes into paths of two or more nodes$",
    ),
    "a node beyond the topology": (lambda: changed("path_nodes", 3, 5), "path node 3 is not a node of the topology$"),
    "a negative node": (lambda: changed("path_nodes", 0, -1), "path node 0 is not a node of the topology$"),
    "a path from a switch": (lambda: with_path(1, (3, 2)), "path 1 does not run from a rank to a rank through"),
    "a path to a switch": (lambda: with_path(1, (0, 3)), "path 1 does not run from a rank"),
    "a path through a rank": (lambda: with_path(1, (0, 1, 2)), "path 1 does not run from a rank"),
    "a path that meets a switch again": (lambda: with_path(4, (2, 3, 4, 3, 0)), "path 4 passes a node twice$"),
    "a path back to its start": (lambda: with_path(4, (2, 3, 2)), "path 4 passes a node twice$"),
    "a path without a link": (lambda: with_path(1, (0, 2)), "path 1 uses a link from 'a' to 'c', which does not"),
    "a path against the only direction": (lambda: with_path(1, (0, 4, 2)), "path 1 uses a link from 'a' to 't',"),
    "an unused path without a link": (
        lambda: forest(
            path_starts=np.append(forest().path_starts, len(forest().path_nodes) + 2),
            path_nodes=np.append(forest().path_nodes, [2, 0]),
        ),
        "path 6 uses a link from 'c' to 'a', which does not exist$",
    ),
}

BROKEN = BAD_SHAPES | BAD_TREES | BAD_PATHS


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_forest_is_refused_for_what_is_wrong(case: str) -> None:
    """One message each, naming the tree, path or rank."""
    broken, message = BROKEN[case]
    with pytest.raises(CertificateError, match="^" + message):
        verified_loads(broken(), TOPOLOGY)


@pytest.mark.parametrize("case", BROKEN)
def test_trees_are_checked_alike_in_small_blocks(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Large forests are gone through in parts; trees keep their numbers in messages."""
    monkeypatch.setattr("collopt.schedules.trees.verify.BLOCK_ENTRIES", 3)
    assert np.array_equal(verified_loads(forest(), TOPOLOGY), forest().link_loads(TOPOLOGY))
    test_a_broken_forest_is_refused_for_what_is_wrong(case)


def test_reducing_trees_load_the_opposite_links() -> None:
    """The same trees with data running towards the roots; one-way links are missing then."""
    loads = verified_loads(forest(direction="reduce"), TOPOLOGY).tolist()
    forward = dict(zip([link[:2] for link in TOPOLOGY.links], forest().link_loads(TOPOLOGY).tolist(), strict=True))
    assert loads == [forward[link.head, link.tail] for link in TOPOLOGY.links]
    one_way = TOPOLOGY.without_link("b", "a", bidirectional=False)
    paths = [[(0, 1), (0, 3, 2)], [(1, 3, 0), (1, 3, 2)], [(2, 3, 0), (2, 3, 1)]]
    made = Forest.from_paths(3, 1, [(root, 1, ways) for root, ways in enumerate(paths)])
    assert sum(verified_loads(made, one_way).tolist()) == 11
    with pytest.raises(CertificateError, match=r"^path 0 uses a link from 'b' to 'a', which does not exist$"):
        verified_loads(replace(made, direction="reduce"), one_way)


def test_ranks_without_a_shard_root_no_tree() -> None:
    """A broadcast has trees of one root only."""
    one = Forest.from_paths(3, 3, [(1, 3, [(1, 0), (1, 3, 2)])])
    made = replace(one, root_weights=np.array([0, 1, 0]))
    assert verified_loads(made, TOPOLOGY).sum() == 9
    with pytest.raises(CertificateError, match=r"^the trees of root 1 weigh 3 together; expected 6$"):
        verified_loads(replace(made, root_weights=np.array([0, 2, 0])), TOPOLOGY)


def test_both_halves_of_an_allreduce_are_checked() -> None:
    """Their directions, their shards, and that their loads can be added up, in the smallest common unit."""
    spread, added = forest(), forest(direction="reduce")
    both = verified_loads(Allreduce(added, spread), TOPOLOGY)
    assert np.array_equal(both, verified_loads(spread, TOPOLOGY) + verified_loads(added, TOPOLOGY))
    thrice = forest(trees_per_root=6, weights=3 * forest().weights)
    assert np.array_equal(verified_loads(Allreduce(added, thrice), TOPOLOGY), 3 * both)
    for first, second in ((spread, spread), (added, added), (spread, added)):
        with pytest.raises(CertificateError, match=r"have the directions"):
            verified_loads(Allreduce(first, second), TOPOLOGY)
    with pytest.raises(CertificateError, match=r"^the allreduce broadcasts other shards than it reduces$"):
        verified_loads(Allreduce(added, forest(root_weights=np.array([1, 1, 2]))), TOPOLOGY)
    with pytest.raises(CertificateError, match=r"^the trees of root 0 weigh 2 together; expected 6$"):
        verified_loads(Allreduce(replace(added, trees_per_root=6), spread), TOPOLOGY)
    large = [forest(trees_per_root=2 * count, weights=count * forest().weights) for count in (2**40 - 1, 2**40)]
    with pytest.raises(
        CertificateError, match=r"^loads in units of 1/\d+ could overflow the 64-bit sums of this check$"
    ):
        verified_loads(Allreduce(replace(large[0], direction="reduce"), large[1]), TOPOLOGY)


@pytest.mark.parametrize("ranks", [2, 3, 15, 16, 17, 33, 100])
def test_long_chains_span(ranks: int) -> None:
    """Data goes once around a ring; one wrong turn at its end is found."""
    topology = ring(ranks)
    chains = [
        (root, 1, [((root + hop) % ranks, (root + hop + 1) % ranks) for hop in range(ranks - 1)])
        for root in range(ranks)
    ]
    made = Forest.from_paths(ranks, 1, chains)
    loads = dict(zip([link[:2] for link in topology.links], verified_loads(made, topology).tolist(), strict=True))
    assert loads["gpu0", "gpu1"] == ranks - 1
    assert sum(loads.values()) == ranks * (ranks - 1)
    if ranks > 2:
        chains[0] = (0, 1, [*chains[0][2][:-2], (ranks - 1, ranks - 2), (ranks - 2, ranks - 1)])
        with pytest.raises(CertificateError, match=f"^tree 0 does not reach rank {ranks - 2} from its root$"):
            verified_loads(Forest.from_paths(ranks, 1, chains), topology)


def test_large_numbers_of_trees_are_added_up_exactly() -> None:
    """Weights just below the limit do not overflow."""
    many = 2**57
    loads = verified_loads(forest(trees_per_root=2 * many, weights=forest().weights * many), TOPOLOGY)
    assert loads.tolist() == [load * many for load in forest().link_loads(TOPOLOGY).tolist()]


@st.composite
def damaged_forests(draw: st.DrawFn) -> tuple[Forest, Topology]:
    """Draw the forest of a plan with up to three entries of its arrays, or none, replaced by other small numbers."""
    topology = draw(eulerian_topologies(max_ranks=4, max_switches=3, max_bandwidth=4))
    able = frozenset(draw(st.sets(st.sampled_from(topology.switch_nodes))) if topology.switch_nodes else ())
    made = plan(replace(topology, multicast=able), "allgather").schedule
    limits = tuple(
        SwitchLimits(switch, draw(st.booleans()), draw(st.sampled_from([None, None, 2, 3]))) for switch in sorted(able)
    )
    topology = replace(topology, multicast=able if draw(st.integers(0, 9)) else frozenset(), limits=limits)
    names = ["roots", "weights", "routes", "routes", "path_starts", "path_nodes", "switches"]
    for _ in range(draw(st.integers(0, 3))):
        name = draw(st.sampled_from(names[: 7 if len(made.switches) else 6]))
        array = getattr(made, name).copy()
        array.flat[draw(st.integers(0, array.size - 1))] = draw(st.integers(-1, 8))
        made = replace(made, **{name: array})
    return made, topology


@given(damaged_forests())
@settings(max_examples=examples(300), suppress_health_check=COMPILING)
def test_forests_are_accepted_exactly_if_a_slow_checker_accepts_them(damaged: tuple[Forest, Topology]) -> None:
    """Both accept the same damaged forests, and with the same loads."""
    made, topology = damaged
    if forest_holds(made, topology):
        assert verified_loads(made, topology).tolist() == loads_of(made, topology)
    else:
        with pytest.raises(CertificateError):
            verified_loads(made, topology)


def test_what_is_no_schedule_or_no_topology_is_refused() -> None:
    """The verification refuses values of other types by name."""
    forest = Forest.from_paths(2, 1, [(0, 1, [(0, 1)]), (1, 1, [(1, 0)])])
    for made, network, message in (
        (forest, None, "the topology is None; expected a Topology"),
        (None, ring(3), "the schedule is None; expected trees, steps or a flow"),
        (Allreduce(None, None), ring(3), "the schedule is None; expected a Forest"),  # type: ignore[arg-type]
    ):
        with pytest.raises(CertificateError, match=message):
            verified_loads(made, network)  # type: ignore[arg-type]
