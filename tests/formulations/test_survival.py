"""The rate that survives failures equals the smallest exact bound over them; reservations are small."""

from __future__ import annotations

import pytest

import collopt
from collopt.errors import TopologyError, UnsupportedError
from collopt.formulations import survival
from collopt.formulations.survival import cables
from collopt.topologies import dgx_a100, hypercube, ring, torus

TOPOLOGIES = [ring(4, bandwidth=30), ring(7, bandwidth=5), torus(3, 3, bandwidth=10), hypercube(3, bandwidth=8)]


@pytest.mark.parametrize("topology", TOPOLOGIES, ids=lambda topology: topology.name)
def test_rate_is_the_smallest_bound_over_all_failures(topology: collopt.Topology) -> None:
    """Scenarios as constraints give what the combinatorial bound gives failure by failure."""
    bounds = [collopt.bound(topology.without_link(*cable), "allgather").algbw for cable in cables(topology)]
    solution = collopt.solve(survival.build(topology))
    assert solution.objective == pytest.approx(float(min(bounds) / topology.num_ranks))


def test_only_the_failures_named_count() -> None:
    """A failure that is left out does not lower the promise, and weights are those of the shards."""
    topology = ring(4, bandwidth=30).derate("gpu0", "gpu1", "1/3")
    both = collopt.solve(survival.build(topology)).objective
    weak = collopt.solve(survival.build(topology, failures=[("gpu0", "gpu1")])).objective
    assert both < weak
    one = survival.build(topology, failures=[("gpu0", "gpu1")], weights=[1, 0, 0, 0])
    assert collopt.solve(one).objective == pytest.approx(30)


def test_cheapest_reservation_for_half_the_promise_takes_no_more_than_half_the_bandwidth() -> None:
    """Where links limit a reservation less it can only become cheaper, and none exceeds its link."""
    topology = hypercube(3, bandwidth=10).derate("gpu0", "gpu1", "1/2")
    model = survival.build(topology)
    best = collopt.solve(model).objective
    totals = []
    for share in (1.0, 0.5):
        model.program.rate.setlb(share * best)
        model.minimize(sum(model.variables.reserved.values()))
        solution = collopt.solve(model)
        totals.append(solution.objective)
        assert max(solution.values["reserved"].values()) <= 10 + 1e-6
    assert totals[1] <= totals[0] / 2 + 1e-6
    assert totals[0] < sum(link.bandwidth for link in topology.links)


def test_a_failure_that_cuts_a_rank_off_leaves_nothing() -> None:
    """Boxes whose GPUs have one link each cannot survive its loss: the rate is 0, not an error."""
    solution = collopt.solve(survival.build(dgx_a100(boxes=1), failures=[cables(dgx_a100(boxes=1))[0]]))
    assert solution.objective == pytest.approx(0, abs=1e-7)


def test_cables_are_pairs_once() -> None:
    """Both directions of a cable are one failure."""
    assert len(cables(ring(5, bandwidth=1))) == 5


def test_refuses_what_is_no_failure() -> None:
    """No failures, something that is no pair, and a pair without a link are named."""
    topology = ring(4, bandwidth=30)
    with pytest.raises(UnsupportedError, match="no failure"):
        survival.build(topology, failures=[])
    with pytest.raises(UnsupportedError, match="pair of names"):
        survival.build(topology, failures=["gpu0-gpu1"])  # type: ignore[list-item]
    with pytest.raises(TopologyError, match="gpu2"):
        survival.build(topology, failures=[("gpu0", "gpu2")])
