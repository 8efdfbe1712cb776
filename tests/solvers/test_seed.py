"""One seed for all that is left to chance."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial

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


def test_executors_are_told() -> None:
    """Their threads and processes know nothing of the context that tasks come from."""
    cube = hypercube(3, bandwidth=25)
    with seeded(1), limited_threads(1):
        expected = collopt.plan(cube, "all_to_all", planner="shortest-paths")
        with ThreadPoolExecutor(1) as pool:
            found = pool.submit(as_here(partial(collopt.plan, planner="shortest-paths")), cube, "all_to_all").result()
    assert found.provenance["seed"] == 1
    assert found.schedule.path_nodes.tolist() == expected.schedule.path_nodes.tolist()  # type: ignore[union-attr]
