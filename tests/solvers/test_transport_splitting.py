"""Plans for switches: what each of them says, and that guessing suffices for real clusters."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from collopt.solvers.flows.bottleneck import bottleneck_cut
from collopt.solvers.flows.max_flow import sweep_sinks
from collopt.solvers.trees import switch_removal as transport_splitting
from collopt.solvers.trees.switch_removal import SwitchPlan, remove_all_switches, split_all_switches
from collopt.topologies import Topology, dgx1_v100, dgx_a100, fat_tree, leaf_spine, mi250
from strategies import eulerian_topologies

Integers = npt.NDArray[np.int64]
RemoveAll = Callable[[Integers, Integers, int], list[SwitchPlan]]


def critical(topology: Topology) -> tuple[Integers, Integers]:
    """Capacities between all nodes and supplies of the ranks, scaled so that they just fit."""
    tails, heads, capacities, _ = topology.arrays
    ones = np.ones(topology.num_ranks, dtype=np.int64)
    best = bottleneck_cut(len(topology.nodes), tails, heads, capacities, ones)
    square = np.zeros((len(topology.nodes), len(topology.nodes)), dtype=np.int64)
    square[tails, heads] = capacities * best.supply
    return square, ones * best.capacity


def check(plans: list[SwitchPlan], capacities: Integers, supplies: Integers, num_sinks: int) -> None:
    """Follow the plans one by one; in the end no switch is left and every sink still receives everything."""
    current = capacities.copy()
    for switch, neighbors, units in plans:
        into, out = current[:, switch].copy(), current[switch].copy()
        assert neighbors.tolist() == np.flatnonzero((into > 0) | (out > 0)).tolist()
        assert units.shape == (len(neighbors), len(neighbors))
        assert units.min(initial=0) >= 0
        assert np.array_equal(units.sum(axis=1), into[neighbors])
        assert np.array_equal(units.sum(axis=0), out[neighbors])
        current[switch] = current[:, switch] = 0
        current[np.ix_(neighbors, neighbors)] += units
        np.fill_diagonal(current, 0)
    assert sorted(plan.switch for plan in plans) == list(range(len(supplies), len(capacities)))
    assert not current[len(supplies) :].any()
    tails, heads = np.nonzero(current)
    sweep = sweep_sinks(len(current), tails, heads, current[tails, heads], supplies, num_sinks)
    assert not sweep.deficit.any()


@pytest.mark.parametrize("remove", [remove_all_switches, split_all_switches])
@given(eulerian_topologies(max_ranks=6, max_switches=4), st.data())
@settings(suppress_health_check=[HealthCheck.too_slow])
def test_plans_account_for_every_unit_around_their_switch(
    remove: RemoveAll, topology: Topology, data: st.DataObject
) -> None:
    """Also where the last ranks only send; the capacities given are left alone."""
    capacities, supplies = critical(topology)
    before = capacities.copy()
    num_sinks = data.draw(st.integers(1, len(supplies)))
    check(remove(capacities, supplies, num_sinks), capacities, supplies, num_sinks)
    assert np.array_equal(capacities, before)


@pytest.mark.parametrize(
    "topology",
    [dgx_a100(boxes=3), dgx1_v100(boxes=2), mi250(boxes=2), mi250(boxes=3), fat_tree(4), leaf_spine(3, 2, 3)],
    ids=lambda topology: topology.name,
)
def test_real_clusters_need_no_exact_splitting(topology: Topology, monkeypatch: pytest.MonkeyPatch) -> None:
    """The guesses pass, those for the MI250 and the DGX-1 after a lesson."""
    monkeypatch.setattr(transport_splitting, "split_pairs", None)
    capacities, supplies = critical(topology)
    check(remove_all_switches(capacities, supplies, len(supplies)), capacities, supplies, len(supplies))
