"""One seed for all that is left to chance."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial

import networkx as nx
import numpy as np
import pytest

import collopt
from collopt.errors import UnsupportedError
from collopt.schedules import FlowSchedule
from collopt.solvers import HighsOptions, limited_threads, seeded
from collopt.solvers.lp.options import as_here
from collopt.support.seed import MAX_SEED, current_seed
from collopt.topologies import Topology, hypercube


def test_the_innermost_seed_counts_and_ends_with_its_context() -> None:
    """Also where an error ends it."""
    assert current_seed() == 0
    with seeded(5):
        assert current_seed() == 5
        with seeded(np.int64(MAX_SEED)):  # type: ignore[arg-type]
            assert current_seed() == MAX_SEED
        with pytest.raises(UnsupportedError), seeded(6):
            collopt.plan(hypercube(1), "dance")
        assert current_seed() == 5
    assert current_seed() == 0


def test_other_threads_of_the_program_keep_theirs() -> None:
    """The seed is that of whoever asked for it."""
    with seeded(2), ThreadPoolExecutor(1) as pool:
        assert pool.submit(current_seed).result() == 0


@pytest.mark.parametrize("seed", [-1, 1.5, True, "2", None, MAX_SEED + 1])
def test_what_is_no_seed_is_refused(seed: object) -> None:
    """Before anything is done."""
    with pytest.raises(UnsupportedError, match=r"seed is .*; expected .* from 0 to 2147483647"), seeded(seed):  # type: ignore[arg-type]
        pass


def test_the_solver_is_told() -> None:
    """What a solve says itself counts more, and a seed does not outlive its context."""
    with seeded(3):
        assert HighsOptions().settings()["random_seed"] == 3
        assert HighsOptions(random_seed=4).settings()["random_seed"] == 4
    assert HighsOptions().settings()["random_seed"] == 0
    with pytest.raises(UnsupportedError, match="random_seed"):
        HighsOptions(random_seed=-1)


def planned(topology: Topology, collective: str, planner: str, seed: int) -> collopt.Plan:
    """Plan from a seed."""
    with seeded(seed):
        return collopt.plan(topology, collective, planner=planner)


def test_the_same_seed_makes_the_same_plan_and_another_one_may_not() -> None:
    """Ties of shortest paths are broken by it; every plan is verified, whatever the seed."""
    cube = hypercube(3, bandwidth=25)
    first, again, other = (planned(cube, "all_to_all", "shortest-paths", seed) for seed in (1, 1, 2))
    schedules = [plan.schedule for plan in (first, again, other)]
    paths = [each.path_nodes.tolist() for each in schedules if isinstance(each, FlowSchedule)]
    assert paths[0] == paths[1] != paths[2]
    assert first.provenance["seed"] == 1
    other.verify()


@pytest.mark.slow
def test_a_search_for_rings_may_find_better_ones_from_another_seed() -> None:
    """What is proved about the network stays; a seed of 0 is not noted, as it is none that anybody chose."""
    graph = nx.gnp_random_graph(12, 0.35, seed=8)
    nx.set_edge_attributes(graph, 10, "bandwidth")
    network = Topology.from_networkx(graph, name="irregular")
    plans = [planned(network, "allgather", "ring", seed) for seed in (0, 1, 0)]
    assert plans[0].algbw == plans[2].algbw > plans[1].algbw
    assert plans[0].bound == plans[1].bound
    assert ["seed" in plan.provenance for plan in plans] == [False, True, False]


def test_executors_are_told() -> None:
    """Their threads and processes know nothing of the context that tasks come from."""
    cube = hypercube(3, bandwidth=25)
    with seeded(1), limited_threads(1):
        expected = collopt.plan(cube, "all_to_all", planner="shortest-paths")
        with ThreadPoolExecutor(1) as pool:
            found = pool.submit(as_here(partial(collopt.plan, planner="shortest-paths")), cube, "all_to_all").result()
    assert found.provenance["seed"] == 1
    assert found.schedule.path_nodes.tolist() == expected.schedule.path_nodes.tolist()  # type: ignore[union-attr]
