"""Links sorted by the kinds of their ends and their bandwidths."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings

from collopt.errors import TopologyError
from collopt.topologies import Topology, dgx1_v100, dgx_a100, leaf_spine, mi250, ring, torus
from collopt.topologies.network.link_costs import link_classes, matching_classes
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
    """Whose bandwidth it has; names are unique."""
    classes = link_classes(topology)
    assert Counter(link for each in classes for link in each.links) == Counter(topology.links)
    assert all(link.bandwidth == each.bandwidth for each in classes for link in each.links)
    assert len({each.name for each in classes}) == len(classes)


def test_latency_is_that_of_the_slowest_link() -> None:
    """Links of one class may differ in it."""
    pair = Topology.from_links([("a", "a1", 5, 1), ("a1", "a", 5, 3)], compute=["a", "a1"])
    (only,) = link_classes(pair)
    assert only.latency == 3


def test_kinds_mean_all_their_classes() -> None:
    """In the order of the network, each once."""
    classes = link_classes(dgx1_v100())
    assert matching_classes(classes, ["gpu-gpu:50", "gpu-gpu"]) == classes
    assert matching_classes(classes, ["gpu-gpu:50"]) == classes[1:]


@pytest.mark.parametrize("topology", [ring(3), torus(3, 3)])
def test_unknown_classes_are_refused(topology: Topology) -> None:
    """With those that there are."""
    with pytest.raises(TopologyError, match="there is no link class 'nic-ib'; expected one of "):
        matching_classes(link_classes(topology), ["nic-ib"])


def test_what_is_no_topology_has_no_classes() -> None:
    """One sentence, not an attribute that is missing."""
    with pytest.raises(TopologyError, match="the topology is None; expected a Topology"):
        link_classes(None)  # type: ignore[arg-type]
