"""Limits of switches that multicast and aggregate: kept by files, graphs, changes and digests, refused if wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from collopt.errors import FileFormatError, TopologyError
from collopt.topologies import SwitchLimits, Topology, read_topology, write_topology

LINKS = [(rank, "s", 10) for rank in "abc"] + [(rank, "plain", 1) for rank in "abc"]
LIMITS = SwitchLimits("s", loopback=True, group=3, operators=("sum", "max"), types=("float16",))


def star(*limits: SwitchLimits, name: str = "star") -> Topology:
    """Three ranks on a switch with limits and one without abilities."""
    return Topology.from_links(
        LINKS,
        compute="abc",
        switches=["s", "plain"],
        bidirectional=True,
        multicast=["s"],
        aggregation=["s"],
        limits=limits,
        name=name,
    )


def test_files_and_graphs_keep_limits(tmp_path: Path) -> None:
    """Whatever a switch requires is there again after writing and reading."""
    network = star(LIMITS)
    write_topology(network, tmp_path / "star.json")
    assert read_topology(tmp_path / "star.json") == network
    assert Topology.from_networkx(network.to_networkx()).digest == network.digest
    assert network.loopback == {"s"}
    assert network.limits[0].operators == ("max", "sum")


def test_limits_that_limit_nothing_are_none() -> None:
    """So equal networks are equal, and digests of networks without limits stay what they were."""
    assert star(SwitchLimits("s")) == star()
    assert star(SwitchLimits("s")).digest == star().digest != star(LIMITS).digest


def test_changes_keep_limits_of_switches_that_remain() -> None:
    """A removed switch takes its limits along."""
    assert star(LIMITS).without_link("a", "s").limits == star(LIMITS).limits
    assert star(LIMITS).without_node("s").limits == ()
    bare = star(LIMITS).without_abilities()
    assert (bare.multicast, bare.aggregation, bare.limits) == (set(), set(), ())


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ([SwitchLimits("t")], "limits are given for 't', which is not a switch of this topology"),
        ([SwitchLimits("a", loopback=True)], "limits are given for 'a', which is not a switch"),
        ([SwitchLimits("s", group=1)], "group limit of switch 's' is 1; expected"),
        ([SwitchLimits("s", loopback="no")], "loopback of switch 's' is 'no'; expected True or False"),
        ([SwitchLimits("s", operators=("",))], "switch 's' has '' among its operators; expected some of and, avg, max"),
        ([SwitchLimits("s", operators=("sum", "mean"))], "switch 's' has 'mean' among its operators; expected"),
        ([SwitchLimits("s", types=("fp16",))], "switch 's' has 'fp16' among its types; expected some of bfloat16"),
        ([SwitchLimits("s", types=(16,))], "switch 's' has 16 among its types; expected"),  # type: ignore[arg-type]
        ([SwitchLimits("s", types=([],))], r"switch 's' has \[\] among its types"),  # type: ignore[arg-type]
        ([SwitchLimits("s", types=4)], "types of switch 's' are 4; expected a list"),  # type: ignore[arg-type]
        ([LIMITS, LIMITS], "switch 's' has limits twice"),
        (["s"], "a switch's limits are 's'; expected SwitchLimits"),
        (3, "the switches' limits are 3; expected a list"),
    ],
)
def test_wrong_limits_are_refused(limits: object, message: str) -> None:
    """With one clear error."""
    with pytest.raises(TopologyError, match=message):
        Topology.from_links(LINKS, compute="abc", switches=["s", "plain"], limits=limits)  # type: ignore[arg-type]


@pytest.mark.parametrize("ability", ["multicast", "aggregation"])
def test_an_able_switch_has_two_neighbors(ability: str, tmp_path: Path) -> None:
    """A switch with one port has nothing to copy to or to add."""
    message = f"{'s'!r} is said to multicast or aggregate, but has links to 1 nodes"
    with pytest.raises(TopologyError, match=message):
        Topology.from_links(
            [("a", "b", 1), ("a", "s", 1)],
            compute="ab",
            switches="s",
            bidirectional=True,
            **{ability: "s"},  # type: ignore[arg-type]
        )
    path = tmp_path / "lonely.json"
    write_topology(Topology.from_links([("a", "b", 1), ("a", "s", 1)], compute="ab", switches="s"), path)
    path.write_text(path.read_text().replace(f'"{ability}": false', f'"{ability}": true'))
    with pytest.raises(FileFormatError, match=message):
        read_topology(path)
