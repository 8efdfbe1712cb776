"""The bound of dispatches against the least time over all trees, by the linear program with a column for each."""

from __future__ import annotations

import numpy as np
import pytest

from collopt.planners import DispatchPlan, count_dispatch, schedule_dispatch
from oracles.multicast_flows import least_time

Classes = dict[tuple[int, frozenset[int]], int]
SHAPES = [(2, 2), (3, 1), (4, 1)]


def drawn(n: int, m: int, seed: int, kinds: int) -> Classes:
    """Some classes of a few tokens, sometimes all of one sender."""
    random = np.random.default_rng(seed)
    classes: Classes = {}
    for _ in range(kinds):
        origin = 0 if seed % 3 == 0 else int(random.integers(n * m))
        others = [rank for rank in range(n * m) if rank != origin]
        wanted = random.choice(others, size=random.integers(1, min(4, n * m)), replace=False)
        classes[origin, frozenset(wanted.tolist())] = int(random.integers(1, 9))
    return classes


def dispatched(classes: Classes, n: int, m: int) -> DispatchPlan:
    """Plan the same tokens, each GPU with an expert; a token's own GPU stands for choices that are left."""
    tokens: list[list[list[int]]] = [[] for _ in range(n * m)]
    for (origin, wanted), count in classes.items():
        tokens[origin] += count * [[*wanted, *[origin] * (n * m - len(wanted))]]
    indices = [np.array(each, dtype=np.int64).reshape(-1, n * m) for each in tokens]
    return schedule_dispatch(count_dispatch(indices, np.arange(n * m), servers=n, gpus_per_server=m), stages="plain")


def check_bound(classes: Classes, n: int, m: int) -> None:
    """On up to three servers whose links inside are fast, the bound is the least time over all trees."""
    plan = dispatched(classes, n, m)
    found = least_time(classes, n, m, 18, 1)
    assert found >= float(plan.bound.load) - 1e-6
    if n <= 3:
        assert found == pytest.approx(float(plan.bound.load), abs=1e-6)
    assert plan.relayed_load is not None
    assert found <= float(max(plan.relayed_load, plan.bound.load)) + 1e-6
    if plan.columns_decide:
        assert found == pytest.approx(float(plan.direct_load), abs=1e-6)


@pytest.mark.parametrize(("n", "m"), SHAPES)
def test_bound_of_dispatches_is_the_least_time_over_trees(n: int, m: int) -> None:
    """Exactly so on up to three servers; relays are within their own bound on four."""
    for seed in range(8):
        check_bound(drawn(n, m, seed, 4), n, m)
