"""Allreduce plans whose trees start anywhere: every rank ends with all sums, so shards may be of any size."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import collopt
from collopt.errors import CertificateError
from collopt.planners import Plan
from collopt.runtime.lowering.lower import lower
from collopt.runtime.programs.interpret import run_program
from collopt.schedules import Allreduce, Bound, Forest, Partition, congestion, in_network, verified_loads
from collopt.topologies import Topology, ring

RING = ring(4, bandwidth=25)
STAR = Topology.from_links(
    [(rank, "sw", 10) for rank in "abc"], compute="abc", switches=["sw"], bidirectional=True, multicast=["sw"]
)


def plan_of(topology: Topology, spread: Forest, witness: Partition) -> Plan:
    """A plan by hand that adds up along the trees along which it spreads."""
    schedule = Allreduce(replace(spread, direction="reduce"), spread)
    loads = schedule.link_loads(topology)
    rate = congestion(loads, schedule.trees_per_root, topology)
    bound = Bound.from_witness(topology, "allreduce", witness)
    return Plan(topology, "allreduce", schedule, bound, rate, loads, "by-hand")


def ring_plan(*roots: int) -> Plan:
    """The four spanning trees of the ring, each without another link and with the root that is named."""
    trees = []
    for gap, root in enumerate(roots):
        # Walk from the root both ways until the gap between `gap` and `gap + 1`.
        ahead, back = (gap - root) % 4, (root - gap - 1) % 4
        paths = [((root + step) % 4, (root + step + 1) % 4) for step in range(ahead)]
        paths += [((root - step) % 4, (root - step - 1) % 4) for step in range(back)]
        trees.append((root, 1, paths))
    weights = [roots.count(rank) for rank in range(4)]
    common = int(np.gcd.reduce(weights))
    spread = Forest.from_paths(4, common, trees, root_weights=[weight // common for weight in weights])
    return plan_of(RING, spread, Partition(tuple(frozenset({node}) for node in RING.nodes)))


def star_plan() -> Plan:
    """One tree, a chain through the switch."""
    spread = Forest.from_paths(3, 1, [(1, 1, [(1, 3, 0), (1, 3, 2)])], root_weights=[0, 1, 0])
    return plan_of(STAR, spread, Partition(tuple(frozenset({node}) for node in STAR.nodes)))


@given(st.lists(st.integers(0, 3), min_size=4, max_size=4))
def test_any_roots_are_as_good(roots: list[int]) -> None:
    """The ring's four spanning trees carry 4/3 of a link's bandwidth, wherever they start."""
    made = ring_plan(*roots)
    made.verify()
    assert (made.algbw, made.gap) == (Fraction(100, 3), 0)
    assert made.inverse_rate == made.schedule.total_weight * Fraction(3, 100)
    assert made.schedule.root_weights.sum() == made.schedule.total_weight


def test_a_switch_that_copies_saves_traffic_of_a_single_root() -> None:
    """Of the four hops down from rank b, one is a copy that the switch can make; adding up it cannot do."""
    made = star_plan()
    made.verify()
    assert made.gap == Fraction(1, 3)  # the links of rank b carry everything twice
    added, spread = (in_network(forest, made.topology) for forest in made.trees.forests)
    assert added is made.trees.forests[0]
    loads = [int(verified_loads(forest, made.topology).sum()) for forest in (made.trees.forests[1], spread)]
    assert loads[1] == Fraction(3, 4) * loads[0]


@pytest.mark.parametrize(
    "made", [ring_plan(0, 0, 0, 0), ring_plan(2, 0, 2, 2), star_plan()], ids=["one", "two", "star"]
)
def test_programs_leave_all_sums_everywhere(made: Plan) -> None:
    """The interpreter runs the lowered plan."""
    run_program(lower(made.schedule, "allreduce"), interleavings=3)


def test_the_gap_compares_bandwidths_not_rates() -> None:
    """With one unit of data instead of four, 1/x of a slower plan can be below that of the bound."""
    made = ring_plan(0, 0, 0, 0)
    spread = replace(made.schedule.broadcast, weights=np.array([4]), **_first_tree(made.schedule.broadcast))
    slower = plan_of(RING, spread, made.bound.witness)
    slower.verify()
    assert slower.inverse_rate < slower.bound.inverse_rate
    assert (slower.algbw, slower.gap) == (25, Fraction(1, 4))


def _first_tree(forest: Forest) -> dict[str, np.ndarray]:
    return {"roots": forest.roots[:1], "routes": forest.routes[:1]}


def test_a_plan_that_is_faster_than_its_bound_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """In GB/s, so with free roots too."""
    made = ring_plan(0, 0, 0, 0)
    wrong = replace(made, bound=replace(made.bound, inverse_rate=made.bound.inverse_rate * 2))
    monkeypatch.setattr(Bound, "verify", lambda bound: None)
    with pytest.raises(
        CertificateError, match=r"claims algbw = 100/3, which beats its bound: allreduce: at most 16\.67"
    ):
        wrong.verify()


def test_other_collectives_keep_their_shards() -> None:
    """An allgather in which one rank has everything is a broadcast, not an allgather."""
    spread = ring_plan(0, 0, 0, 0).schedule.broadcast
    bound = collopt.bound(RING, "allgather")
    loads = spread.link_loads(RING)
    rate = congestion(loads, spread.trees_per_root, RING)
    with pytest.raises(CertificateError, match="shards differ"):
        Plan(RING, "allgather", spread, bound, rate, loads, "by-hand").verify()
