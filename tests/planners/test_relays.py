"""Ranks that are a part of the compute nodes, where the others pass data on."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import collopt
from collopt import Topology
from collopt.errors import BoundError, UnsupportedError
from collopt.runtime.lowering.lower import lower
from collopt.runtime.nccl.graph import ring_channels
from collopt.topologies import SwitchLimits, dgx_h100, ring, torus
from sample_sizes import examples
from strategies import eulerian_topologies


@pytest.mark.parametrize(
    ("fabric", "ranks", "alone", "relayed"),
    [
        # One way round a ring, and both.
        (ring(4, bandwidth=10), [0, 1], 20, 40),
        # One link of four, and all of them.
        (torus(4, 4, bandwidth=1), [0, 1], 2, 8),
        # A GPU outside adds its NIC to that of a rank, over NVLink.
        (dgx_h100(boxes=2), [0, 8], 100, 800),
    ],
)
def test_relays_add_their_links(fabric: Topology, ranks: list[int], alone: int, relayed: int) -> None:
    """Rates of two ranks by hand: all that leaves the one reaches the other."""
    rates = []
    for relay in (False, True):
        plan = collopt.plan(fabric.restrict(ranks, relay=relay), "allgather")
        plan.verify()
        assert plan.gap == 0
        rates.append(plan.algbw)
    assert rates == [alone, relayed]


@given(eulerian_topologies(max_ranks=6, max_switches=2), st.data())
@settings(max_examples=examples(30))
def test_relays_never_slow_a_group_down(fabric: Topology, data: st.DataObject) -> None:
    """On balanced networks plans over relays are optimal, and no slower than without them."""
    ranks = data.draw(st.lists(st.integers(0, fabric.num_ranks - 1), min_size=2, unique=True))
    others = len(ranks) < fabric.num_ranks
    plan = collopt.plan(fabric.restrict(ranks, relay=others), "allgather")
    plan.verify()
    assert plan.gap == 0
    try:
        alone = collopt.bound(fabric.restrict(ranks), "allgather").algbw
    except (BoundError, UnsupportedError):
        return
    assert plan.algbw >= alone


def test_relays_are_kept_by_files_and_by_other_networks(tmp_path: Path) -> None:
    """A plan file and networkx keep what a relay is; it counts in comparisons, unlike a switch of its name."""
    network = ring(5, bandwidth=10).restrict([0, 2], relay=True)
    assert network.relays == {"gpu1", "gpu3", "gpu4"}
    plan = collopt.plan(network, "allreduce")
    plan.save(tmp_path / "plan.json")
    found = collopt.load_plan(tmp_path / "plan.json").topology
    assert found == network
    assert Topology.from_networkx(network.to_networkx()).digest == network.digest
    assert network.without_abilities().relays == network.relays
    assert network != network.changed(limits=())
    assert network.limits[0] == SwitchLimits("gpu1", relay=True)


def test_what_relays_would_run_is_refused(tmp_path: Path) -> None:
    """Programs, traces and graphs refuse routes over relays, and take plans that leave them out."""
    network = ring(4, bandwidth=10).restrict([0, 1], relay=True)
    plan = collopt.plan(network, "allgather")
    for act in (
        lambda: lower(plan.schedule, "allgather", topology=network),
        lambda: plan.to_msccl_xml(tmp_path / "plan.xml"),
        lambda: plan.export("chakra-et", tmp_path / "plan", size="1M"),
        lambda: ring_channels(plan),
    ):
        with pytest.raises(UnsupportedError, match=r"^the plan's routes pass through compute nodes .*such as 'gpu2'"):
            act()
    direct = collopt.plan(network.without_link("gpu2", "gpu3"), "allgather")
    assert lower(direct.schedule, "allgather", topology=direct.topology).num_ranks == 2
    assert plan.simulate("1M") == pytest.approx(2**20 / 40e3)
