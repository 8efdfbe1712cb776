"""Several collectives on one fabric: shares add up, rates trade off, and mistakes are named."""

from __future__ import annotations

import pytest

import collopt
from collopt.errors import TopologyError, UnsupportedError
from collopt.formulations import allreduce, sharing, throughput
from collopt.topologies import dgx_a100, ring, torus

TOPOLOGIES = [ring(4, bandwidth=30), torus(3, 3, bandwidth=10), dgx_a100(boxes=1)]


@pytest.mark.parametrize("topology", TOPOLOGIES, ids=lambda topology: topology.name)
def test_two_equal_collectives_get_half_each(topology: collopt.Topology) -> None:
    """The least rate of n equal parts is the rate alone over n."""
    alone = collopt.bound(topology, "allgather").algbw / topology.num_ranks
    parts = {name: throughput.build(topology) for name in ("one", "two")}
    solution = collopt.solve(sharing.build(topology, parts))
    assert solution.objective == pytest.approx(float(alone / 2))


def test_weights_divide_the_fabric() -> None:
    """A part of weight 3 gets three times what a part of weight 1 gets."""
    topology = ring(5, bandwidth=20)
    parts = {name: throughput.build(topology) for name in ("large", "small")}
    solution = collopt.solve(sharing.build(topology, parts, weights={"large": 3, "small": 1}))
    alone = float(collopt.bound(topology, "allgather").algbw / 5)
    assert solution.values["least"] == pytest.approx(alone / 4)
    assert solution.values["large.rate"] == pytest.approx(3 * alone / 4)


@pytest.mark.parametrize("topology", TOPOLOGIES, ids=lambda topology: topology.name)
def test_an_allreduce_shares_with_an_allgather(topology: collopt.Topology) -> None:
    """What is left when the allgather keeps half of its rate is no less than half of the best allreduce."""
    parts = {"sums": allreduce.build(topology), "shards": throughput.build(topology)}
    model = sharing.build(topology, parts)
    half = collopt.bound(topology, "allgather").algbw / topology.num_ranks / 2
    model.constrain("shards_first", parts["shards"].rate >= half)
    model.maximize(parts["sums"].rate)
    best = collopt.bound(topology, "allreduce").algbw
    assert best / 2 <= collopt.solve(model).exact.objective < best


def test_refuses_what_is_no_part() -> None:
    """Names, models, weights and links are checked, and a model is a part once."""
    topology = ring(4, bandwidth=30)
    part = throughput.build(topology)
    with pytest.raises(UnsupportedError, match="parts is"):
        sharing.build(topology, {})
    with pytest.raises(UnsupportedError, match="'training'"):
        sharing.build(topology, {"not a name": part})
    with pytest.raises(UnsupportedError, match="part 'x' is a int"):
        sharing.build(topology, {"x": 3})
    with pytest.raises(UnsupportedError, match="part 'x' is a FixedCountModel"):
        sharing.build(topology, {"x": throughput.build_fixed_count(topology, 3)})
    with pytest.raises(UnsupportedError, match="two parts are the same model"):
        sharing.build(topology, {"x": part, "y": part})
    assert collopt.solve(part).objective == pytest.approx(20)
    with pytest.raises(UnsupportedError, match="one number for each of x"):
        sharing.build(topology, {"x": part}, weights={"y": 1})
    with pytest.raises(UnsupportedError, match="weight of 'x'"):
        sharing.build(topology, {"x": part}, weights={"x": -1})
    with pytest.raises(TopologyError, match="which ring-4 does not have"):
        sharing.build(topology, {"x": throughput.build(ring(5, bandwidth=30))})
    joint = sharing.build(topology, {"x": part})
    assert part.program.model() is joint.program
    with pytest.raises(UnsupportedError, match="in no other program"):
        sharing.build(topology, {"x": part})
    with pytest.raises(UnsupportedError, match="'x' is a part of sharing of ring-4"):
        collopt.solve(part)
