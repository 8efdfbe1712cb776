"""The `Topology` type: what it accepts, what it answers, what its changes do, and limits of its switches."""

from __future__ import annotations

import dataclasses
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collopt.errors import CapacityOverflowError, ColloptError, FileFormatError, TopologyError, UnsupportedError
from collopt.topologies import Link, SwitchLimits, Topology, mi250, read_topology, write_topology
from collopt.topologies.network.links import as_root, rank_number
from sample_sizes import examples


def star(**changes: Any) -> Topology:
    """Three hosts on one switch, with names, bandwidths and latencies that differ."""
    options: dict[str, Any] = {"compute": ["a", "b", "c"], "switches": ["hub"], "bidirectional": True} | changes
    return Topology.from_links([("a", "hub", 10, 1), ("b", "hub", "5/2"), ("c", "hub", 0.5, "0.25")], **options)


def test_links_hold_exact_numbers_in_both_directions() -> None:
    """Bandwidths and latencies are the fractions that were written."""
    topology = star()
    assert topology.link("c", "hub") == Link("c", "hub", Fraction(1, 2), Fraction(1, 4))
    assert topology.link("hub", "b") == Link("hub", "b", Fraction(5, 2), Fraction(0))
    assert len(topology.links) == 6


def test_ingress_and_egress_add_up_the_links() -> None:
    """B-(v) and B+(v) are sums over the links of v."""
    topology = Topology.from_links(
        [("a", "b", 3), ("b", "c", 4), ("a", "c", "1/2"), ("c", "a", 1)], compute=["a", "b", "c"]
    )
    assert [topology.egress(node) for node in topology.nodes] == [Fraction(7, 2), 4, 1]
    assert [topology.ingress(node) for node in topology.nodes] == [1, 3, Fraction(9, 2)]
    assert [link.head for link in topology.out_links("a")] == ["b", "c"]
    assert [link.tail for link in topology.in_links("c")] == ["b", "a"]


def test_parallel_links_add_bandwidth_and_keep_the_larger_latency() -> None:
    """Two cables between two nodes are one link."""
    topology = Topology.from_links([("a", "b", 3, 5), ("a", "b", 4, 2), ("b", "a", 1)], compute=["a", "b"])
    assert topology.links == (Link("a", "b", Fraction(7), Fraction(5)), Link("b", "a", Fraction(1), Fraction(0)))


def test_merged_links_obey_the_limits_of_single_ones() -> None:
    """What a topology accepts it accepts again after a change, and from a file."""
    with pytest.raises(TopologyError, match="at most 1e"):
        Topology.from_links([("a", "b", 10**9), ("a", "b", 1)], compute=["a", "b"])
    with pytest.raises(TopologyError, match="12 decimal places"):
        Topology.from_links([("a", "b", "1/999999999989"), ("a", "b", "1/999999999961")], compute=["a", "b"])


@pytest.mark.parametrize(
    ("links", "options", "message"),
    [
        ([("a", "b", 1)], {"compute": ["a"], "switches": ["b"]}, "at least 2 compute nodes; the topology has 1"),
        ([("a", "z", 1)], {}, "unknown node 'z'; list it under compute or switches"),
        ([("a", "a", 1)], {}, "self-loop"),
        ([("a", "b", 0)], {}, r"bandwidth of link \('a', 'b'\) is 0; expected a positive number"),
        ([("a", "b", 1, -2)], {}, "latency of .* is -2"),
        ([("a", "b")], {}, "is not a tuple"),
        ([], {"compute": ["a", "b", "a"]}, "compute node 'a' is listed twice"),
        ([], {"switches": ["b"]}, "'b' is listed as compute and as switch"),
        ([], {"multicast": ["a"]}, "multicast is claimed for 'a', which is not a switch"),
        ([], {"name": "two\nlines"}, "the topology's name is"),
    ],
)
def test_a_description_that_makes_no_sense_is_refused(links: list[Any], options: dict[str, Any], message: str) -> None:
    """One sentence on one line says what is wrong."""
    with pytest.raises(TopologyError, match=message) as caught:
        Topology.from_links(links, **({"compute": ["a", "b"]} | options))
    assert "\n" not in str(caught.value)


def test_arrays_are_the_smallest_integers_in_the_order_of_the_links() -> None:
    """Capacities times unit are the bandwidths, without a common divisor."""
    arrays = star().arrays
    assert arrays.unit == Fraction(1, 2)
    assert arrays.tails.tolist() == [0, 3, 1, 3, 2, 3]
    assert arrays.heads.tolist() == [3, 0, 3, 1, 3, 2]
    assert arrays.capacities.tolist() == [20, 20, 5, 5, 1, 1]
    assert {array.dtype for array in arrays[:3]} == {np.dtype(np.int64)}


def test_bandwidths_without_a_common_unit_overflow_loudly() -> None:
    """Capacities that exceed int64 raise an error."""
    links = [("a", "b", 10**9), ("b", "a", "1/999999999989")]
    with pytest.raises(CapacityOverflowError, match="round them"):
        _ = Topology.from_links(links, compute=["a", "b"]).arrays


def test_the_digest_depends_on_the_network_only() -> None:
    """Neither the name nor the order of links matters; ranks, bandwidths and abilities do."""
    topology = star()
    twin = dataclasses.replace(topology, name="other", links=topology.links[::-1])
    assert topology.digest == twin.digest
    others = [
        topology.restrict(["b", "a", "c"]),
        topology.derate("a", "hub", "1/2"),
        dataclasses.replace(topology, multicast=frozenset({"hub"})),
        dataclasses.replace(topology, aggregation=frozenset({"hub"})),
        topology.without_link("a", "hub", bidirectional=False),
    ]
    assert len({topology.digest, *(other.digest for other in others)}) == 6


def test_half_of_each_mi250_box_keeps_the_links_among_its_gcds() -> None:
    """The 8+8 setting of ForestColl section 6.2.1: packages keep 6, 6, 3 and 3 links to others, and every NIC."""
    topology = mi250(boxes=2).restrict([*range(8), *range(16, 24)])
    for box in ("box0", "box1"):
        for package, links in enumerate((6, 6, 3, 3)):
            inside = {f"{box}/gpu{2 * package}", f"{box}/gpu{2 * package + 1}"}
            outside = [link for gcd in sorted(inside) for link in topology.out_links(gcd) if link.head not in inside]
            assert sum(link.bandwidth for link in outside if "gpu" in link.head) == 50 * links
            assert sum(link.bandwidth for link in outside if "nic" in link.head) == 32


@settings(max_examples=examples(100))
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["a", "b", "s", 0, "", None]),
            st.sampled_from(["a", "b", "s", 0]),
            st.one_of(st.integers(-1, 3), st.floats(), st.text(max_size=3)),
        ),
        max_size=4,
    ),
    st.lists(st.sampled_from(["a", "b", 0]), max_size=4),
)
def test_any_description_gives_a_topology_or_a_clear_refusal(links: list[Any], compute: list[Any]) -> None:
    """No other exception escapes the constructor."""
    try:
        topology = Topology.from_links(links, compute=compute, switches=["s"])
    except ColloptError:
        return
    assert topology.num_ranks >= 2
    assert all(link.bandwidth > 0 for link in topology.links)


TWO_RANKS = Topology.from_links([("a", "s", 1), ("s", "b", 1)], compute=["a", "b"], switches=["s"], bidirectional=True)


@pytest.mark.parametrize(("given", "number"), [(0, 0), (1, 1), (np.int64(1), 1), ("a", 0), ("b", 1)])
def test_a_rank_is_found_by_number_and_by_name(given: object, number: int) -> None:
    """Its number is Python's own."""
    assert rank_number(TWO_RANKS.compute_nodes, given) == as_root(TWO_RANKS.compute_nodes, given) == number
    assert type(rank_number(TWO_RANKS.compute_nodes, given)) is int


@pytest.mark.parametrize("given", [-1, 2, "s", "c", "", "0", True, 1.0, None, ["a"]])
def test_what_is_no_rank_is_not_found(given: object) -> None:
    """A switch is no rank, and nor is a number as text."""
    assert rank_number(TWO_RANKS.compute_nodes, given) is None
    with pytest.raises(UnsupportedError, match=r"^root .* is not a rank; expected 0\.\.1 or a name such as 'a'$"):
        as_root(TWO_RANKS.compute_nodes, given)


STAR_LINKS = [(rank, "s", 10) for rank in "abc"] + [(rank, "plain", 1) for rank in "abc"]
LIMITS = SwitchLimits("s", loopback=True, group=3, operators=("sum", "max"), types=("float16",))


def limited_star(*limits: SwitchLimits, name: str = "star") -> Topology:
    """Three ranks on a switch with limits and one without abilities."""
    return Topology.from_links(
        STAR_LINKS,
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
    network = limited_star(LIMITS)
    write_topology(network, tmp_path / "star.json")
    assert read_topology(tmp_path / "star.json") == network
    assert Topology.from_networkx(network.to_networkx()).digest == network.digest
    assert network.loopback == {"s"}
    assert network.limits[0].operators == ("max", "sum")


def test_limits_that_limit_nothing_are_none() -> None:
    """So equal networks are equal, and digests of networks without limits stay what they were."""
    assert limited_star(SwitchLimits("s")) == limited_star()
    assert limited_star(SwitchLimits("s")).digest == limited_star().digest != limited_star(LIMITS).digest


def test_changes_keep_limits_of_switches_that_remain() -> None:
    """A removed switch takes its limits along."""
    assert limited_star(LIMITS).without_link("a", "s").limits == limited_star(LIMITS).limits
    assert limited_star(LIMITS).without_node("s").limits == ()
    bare = limited_star(LIMITS).without_abilities()
    assert (bare.multicast, bare.aggregation, bare.limits) == (set(), set(), ())


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ([SwitchLimits("t")], "limits are given for 't', which is not a switch of this topology"),
        ([SwitchLimits("s", group=1)], "group limit of switch 's' is 1; expected"),
        ([SwitchLimits("s", loopback="no")], "loopback of switch 's' is 'no'; expected True or False"),
        ([SwitchLimits("s", operators=("sum", "mean"))], "switch 's' has 'mean' among its operators; expected"),
        ([SwitchLimits("s", types=("fp16",))], "switch 's' has 'fp16' among its types; expected some of bfloat16"),
        ([SwitchLimits("s", types=4)], "types of switch 's' are 4; expected a list"),  # type: ignore[arg-type]
        ([LIMITS, LIMITS], "switch 's' has limits twice"),
    ],
)
def test_wrong_limits_are_refused(limits: object, message: str) -> None:
    """The message names the switch, the limit and its value."""
    with pytest.raises(TopologyError, match=message):
        Topology.from_links(STAR_LINKS, compute="abc", switches=["s", "plain"], limits=limits)  # type: ignore[arg-type]


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
