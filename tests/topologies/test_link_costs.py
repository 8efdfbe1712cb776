"""Link classes, costs of the software, and the bandwidths that they leave."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings

import collopt
from collopt.errors import ColloptError, FileFormatError, TopologyError, UnsupportedError
from collopt.topologies import (
    LINKS_ONLY,
    RuntimeCosts,
    Topology,
    dgx1_v100,
    dgx_a100,
    guessed_costs,
    leaf_spine,
    mi250,
    reached_network,
    read_topology,
    ring,
    write_topology,
)
from collopt.topologies.network.link_costs import as_costs, link_classes, matching_classes
from sample_sizes import examples
from strategies import eulerian_topologies


@pytest.mark.parametrize(
    ("topology", "names"),
    [
        (dgx_a100(), ["gpu-nvswitch"]),
        (dgx_a100(boxes=2), ["gpu-nvswitch", "gpu-nic", "nic-ib"]),
        (dgx1_v100(), ["gpu-gpu:25", "gpu-gpu:50"]),
        (mi250(), ["gpu-gpu:200", "gpu-gpu:50", "gpu-gpu:100"]),
        (leaf_spine(2, 2, 2), ["host-leaf", "leaf-spine"]),
        (Topology.from_links([("0", "1", 5), ("1", "0", 5)], compute=["0", "1"]), ["rank-rank"]),
        (Topology.from_links([("a.0", "7", 5), ("7", "a.1", 5)], compute=["a.0", "a.1"], switches=["7"]), ["a-switch"]),
        (Topology.from_links([("a", "b", "0.5"), ("b", "a", 2)], compute="ab"), ["a-b:1/2", "a-b:2"]),
    ],
)
def test_classes_are_named_by_what_they_join(topology: Topology, names: list[str]) -> None:
    """With the bandwidth where kinds alone do not tell."""
    assert [each.name for each in link_classes(topology)] == names


@settings(max_examples=examples(30))
@given(topology=eulerian_topologies())
def test_every_link_is_in_one_class(topology: Topology) -> None:
    """Each link has the bandwidth of its class, and names of classes are unique."""
    classes = link_classes(topology)
    assert Counter(link for each in classes for link in each.links) == Counter(topology.links)
    assert all(link.bandwidth == each.bandwidth for each in classes for link in each.links)
    assert len({each.name for each in classes}) == len(classes)


def test_kinds_mean_all_their_classes() -> None:
    """In the order of the network, each once."""
    classes = link_classes(dgx1_v100())
    assert matching_classes(classes, ["gpu-gpu:50", "gpu-gpu"]) == classes
    assert matching_classes(classes, ["gpu-gpu:50"]) == classes[1:]


@pytest.mark.parametrize(
    "wrong",
    [
        {"alpha": -1},
        {"send": "many"},
        {"efficiency": {"gpu-nic": 0}},
        {"efficiency": {"gpu-nic": 2}},
        {"efficiency": 0.9},
        {"efficiency": [("gpu-nic",)]},
        {"calibrated": "yes"},
        {"ends": 5},
        {"ends": [(1, 2, 3)]},
        {"ends": [(-1, 0)]},
        {"ends": [(1, 2)] * 17},
    ],
)
def test_refuses_other_values(wrong: dict[str, Any]) -> None:
    """Each wrong cost raises an error of ours."""
    with pytest.raises(ColloptError):
        RuntimeCosts(**wrong)


def test_a_file_keeps_them(tmp_path: Path) -> None:
    """Written and read back; the digest is that of the network alone."""
    costs = RuntimeCosts(
        alpha="11.8", send=Fraction(1, 3), reduction=1, efficiency={"gpu-nic": "0.68"}, calibrated=True
    )
    network = replace(dgx_a100(boxes=2), costs=costs)
    collopt.topologies.write_topology(network, tmp_path / "cluster.json")
    read = collopt.topologies.read_topology(tmp_path / "cluster.json")
    assert read.costs == costs
    assert read == network
    assert read.digest == dgx_a100(boxes=2).digest


def test_costs_of_other_ranks_are_not_calibrated() -> None:
    """A ring's parameters on 32 ranks are off by three quarters on 16."""
    costs = RuntimeCosts(alpha=11, calibrated=True)
    network = replace(dgx_a100(boxes=2), costs=costs)
    assert network.without_node("box0/nic0").costs == costs
    assert network.restrict(reversed(range(16))).costs == costs
    for smaller in (network.restrict(range(8)), network.without_node("box0/gpu0")):
        assert smaller.costs == RuntimeCosts(alpha=11)


def test_scales_bandwidths_by_class_and_kinds() -> None:
    """A class with its bandwidth goes before its kinds."""
    network = mi250(boxes=2)
    scaled = reached_network(network, RuntimeCosts(efficiency={"gpu-gpu": "1/2", "gpu-gpu:50": "1/5"}))
    for before, after in zip(network.links, scaled.links, strict=True):
        share = Fraction(1)
        if "gpu" in before.tail and "gpu" in before.head:
            share = Fraction(1, 5) if before.bandwidth == 50 else Fraction(1, 2)
        assert after == before._replace(bandwidth=before.bandwidth * share)


@pytest.mark.parametrize("given", ["argument", "topology", "file"])
def test_shares_of_unknown_classes(tmp_path: Path, given: str) -> None:
    """A typo would give times that are too short."""
    costs = RuntimeCosts(efficiency={"gpu-nci": "1/2", "gpu-nvswitch": "1/2"})
    network, told = dgx_a100(boxes=2), "no link class 'gpu-nci' .did you mean gpu-nic.*gpu-nvswitch, gpu-nic, nic-ib"
    stated = replace(network, costs=costs)
    if given == "file":
        write_topology(stated, tmp_path / "network.json")
        with pytest.raises(FileFormatError, match=told):
            read_topology(tmp_path / "network.json")
        return
    with pytest.raises(TopologyError, match=told):
        as_costs(costs, network) if given == "argument" else as_costs(None, stated.without_node("box0/nic0"))


def test_shares_of_lost_classes_leave() -> None:
    """What a network without its switch cannot have is no typo."""
    costs = RuntimeCosts(2, efficiency={"gpu-nvswitch": "1/2", "gpu-nic": "3/4", "nic-ib": "3/4"})
    network = replace(dgx_a100(boxes=2), costs=costs)
    alone = network.without_node("ib")
    assert alone.costs == RuntimeCosts(2, efficiency={"gpu-nvswitch": "1/2", "gpu-nic": "3/4"})
    assert as_costs(None, alone) == alone.costs


def test_guesses() -> None:
    """By name, for the link classes of the network."""
    assert guessed_costs("links", ring(4)) == LINKS_ONLY
    assert guessed_costs("fused", mi250(boxes=2)).alpha == 2
    assert [share for _, share in guessed_costs("generic", ring(4)).efficiency] == [Fraction(11, 20)]
    assert guessed_costs("generic", ring(4)).label == "not calibrated"
    with pytest.raises(UnsupportedError, match="generic"):
        guessed_costs("fast", ring(4))
