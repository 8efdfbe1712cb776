"""The fast way, the general way behind it, and what a plan says of both."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest

import collopt
from collopt.errors import SolverError
from collopt.planners.plans.stages import on_stage
from collopt.planners.trees import forest
from collopt.solvers.trees.height_reduction import lower_trees
from collopt.solvers.trees.tree_packing import Packing
from collopt.topologies import Topology, dgx_a100, dragonfly, mi250, ring

Integers = npt.NDArray[np.int64]
Lowering = Callable[[Packing, Integers], Packing]

STAGES = ["bottleneck", "tight sets", "switch removal", "tree packing", "height reduction", "loads", "verification"]


@pytest.mark.parametrize("topology", [dgx_a100(boxes=2), mi250(boxes=2), dragonfly(2, 2, 1)], ids=lambda t: t.name)
@pytest.mark.parametrize("broken", ["trim_to_tight_sets", "remove_switches", "pack_forest"])
def test_the_general_way_takes_over(topology: Topology, broken: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever fails in the fast way, the plan is as good, and says why it was made the other way."""
    original = getattr(forest, broken)
    calls = []

    def fail_once(*arguments: object) -> object:
        calls.append(broken)
        if len(calls) == 1:
            raise SolverError("on purpose")
        return original(*arguments)

    monkeypatch.setattr(forest, broken, fail_once)
    plan = collopt.plan(topology, "allgather")
    assert plan.gap == 0
    assert plan.provenance["refused"] == "on purpose"
    assert "exact_edge_splitting_s" in plan.provenance


def without_a_rank(packing: Packing, tails: Integers) -> Packing:
    """Forget how one rank of the first tree receives."""
    links = packing.links.copy()
    links[0, 0 if packing.roots[0] else 1] = -1
    return packing._replace(links=links)


def with_another_weight(packing: Packing, tails: Integers) -> Packing:
    """Count the first tree once more than was asked for."""
    weights = packing.weights.copy()
    weights[0] += 1
    return packing._replace(weights=weights)


def with_one_tree_for_all(packing: Packing, tails: Integers) -> Packing:
    """Give all copies of every root to its first tree: spanning trees that overload links."""
    first = np.unique(packing.roots, return_index=True)[1]
    totals = np.bincount(packing.roots, packing.weights).astype(np.int64)
    return Packing(packing.roots[first], totals[packing.roots[first]], packing.links[first])


@pytest.mark.parametrize("collective", ["allgather", "reduce_scatter", "allreduce"])
@pytest.mark.parametrize(
    ("broken", "reason"),
    [
        (without_a_rank, "tree 0 does not deliver to rank "),
        (with_another_weight, "weigh 84 together; expected 83"),
        (with_one_tree_for_all, "more trees than its capacity"),
    ],
)
def test_a_wrong_forest_of_the_fast_way_is_refused(
    collective: str, broken: Lowering, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is verified as strictly as a plan, and the general way takes over."""
    calls = []

    def break_once(packing: Packing, tails: Integers) -> Packing:
        calls.append(broken)
        return lower_trees(packing, tails) if len(calls) > 1 else broken(packing, tails)

    monkeypatch.setattr(forest, "lower_trees", break_once)
    plan = collopt.plan(mi250(boxes=2), collective)
    assert len(calls) == 2
    assert reason in str(plan.provenance["refused"])
    assert "exact_edge_splitting_s" in plan.provenance
    assert plan.bound.inverse_rate == collopt.bound(mi250(boxes=2), collective).inverse_rate
    plan.verify()
    assert plan.gap == 0 or collective == "allreduce"


def test_provenance_has_the_time_of_every_stage() -> None:
    """And how many sets were tight; nothing was refused."""
    plan = collopt.plan(mi250(boxes=2), "allgather")
    assert all(plan.provenance[f"{stage.replace(' ', '_')}_s"] >= 0 for stage in STAGES)
    assert plan.provenance["tight_sets"] == 16
    assert "refused" not in plan.provenance


def test_stages_are_announced_as_they_start() -> None:
    """What a progress display shows; outside the context nobody is told."""
    heard: list[str] = []
    with on_stage(heard.append):
        collopt.plan(ring(3), "allgather")
    assert heard == STAGES
    collopt.plan(ring(3), "allgather")
    assert heard == STAGES


def test_trees_of_the_reference_clusters_are_low() -> None:
    """No throughput is given up for it: MI250 at k = 83, and stars across a thousand A100."""
    small = collopt.plan(mi250(boxes=2), "allgather")
    assert small.gap == 0
    assert small.schedule.trees_per_root == 83
    assert small.heights.highest <= 10
    assert small.heights.mean <= 7
    large = collopt.plan(dgx_a100(boxes=128), "allgather")
    assert large.gap == 0
    assert large.heights.highest <= 4
