"""Failures and scalings as text, what is left after them, and which failures are alike."""

from __future__ import annotations

import time
from fractions import Fraction
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collopt.errors import TopologyError
from collopt.topologies import (
    Failure,
    Scaling,
    Topology,
    dgx_a100,
    dgx_h100,
    failure_cases,
    fat_tree,
    ring,
    scaled_links,
    torus,
)
from collopt.topologies.network.failures import Fault
from collopt.topologies.symmetry.failure_orbits import Symmetries
from sample_sizes import examples


def counts(topology: Topology, *kinds: str) -> list[tuple[str, int]]:
    """Cases with how many failures each stands for."""
    return [(str(case.failure), len(case.members)) for case in failure_cases(topology, kinds)]


def test_failures_are_read_in_the_order_of_nodes_and_applied() -> None:
    """A link that is derated, a NIC and a GPU at once; the text is read again as the same."""
    box = dgx_a100(boxes=2)
    failure = Failure.read(box, ["box1/gpu2", "box1/nic3 + ib--box0/nic0 x 1/2"])
    assert str(failure) == "box1/gpu2 + box0/nic0--ib x 1/2 + box1/nic3"
    assert Failure.read(box, str(failure)) == failure
    left = failure.applied(box)
    assert left.num_ranks == 15
    assert "box1/nic3" not in left.nodes
    assert {left.link("ib", "box0/nic0").bandwidth, left.link("box0/nic0", "ib").bandwidth} == {Fraction(25, 2)}


def test_a_switch_that_goes_with_its_last_link_may_fail_as_well() -> None:
    """Nothing is left of it to remove."""
    star = Topology.from_links(
        [("a", "b", 1), ("a", "s", 1), ("b", "s", 1), ("s", "t", 1)], compute="ab", switches="st", bidirectional=True
    )
    assert Failure.read(star, "s + t").applied(star).switch_nodes == ()


@pytest.mark.parametrize("names", ["r--a,r--b,c", "a + b,b,c", "a x 1/2,b,c", "b,a x 2,c", "b,a x 1/2,c"])
def test_failures_of_any_names_are_found_again(names: str) -> None:
    """A failure need not be read from its text, and names may have what joins names."""
    nodes = names.split(",")
    chain = Topology.from_links(
        [(nodes[0], nodes[1], 1), (nodes[1], nodes[2], 1)], compute=nodes, bidirectional=True, name="chain"
    )
    for case in failure_cases(chain, ["link", "gpu"], derate=["1/2"], pairs=["gpu+link"]):
        assert all(Failure.read(chain, member) == member for member in case.members)
    dashed = Failure((Fault(tuple(nodes[:2])),))
    assert Failure.read(chain, str(dashed)) == dashed
    half = Failure((Fault(tuple(nodes[:2]), Fraction(1, 2)),))
    assert Failure.read(chain, str(half)) == half


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (Fault(()), "no link between"),
        (Fault(("gpu0",), Fraction(1, 2)), "no link between"),
        (Fault(("gpu0", "gpu1"), Fraction(2)), "expected less than 1"),
        (Fault(("x",)), "is not a node"),
    ],
)
def test_failures_that_the_network_cannot_have_are_refused(fault: Fault, message: str) -> None:
    """A failure of another network is refused when it is read."""
    with pytest.raises(TopologyError, match=message):
        Failure.read(ring(4), Failure((fault,)))


@pytest.mark.parametrize("text", ["", "intact", []])
def test_nothing_fails_in_the_intact_network(text: str) -> None:
    """The intact network is the failure without faults, also as text."""
    assert Failure.read(ring(4), text) == Failure()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nic3", "is ambiguous: box0/nic3, box1/nic3"),
        ("gpu99", "is not a node"),
        ("box0/gpu0--box1/gpu0", "no link between"),
        ("box0/nic0--ib x 1", "expected less than 1"),
        ("box0/nic0 + box0/nic0", "'box0/nic0' twice"),
        ([3], "expected text"),
    ],
)
def test_unclear_failures_are_refused(text: str, message: str) -> None:
    """The message names the part that is ambiguous, unknown or out of range."""
    with pytest.raises(TopologyError, match=message):
        Failure.read(dgx_a100(boxes=2), text)


def test_boxes_have_a_case_for_each_kind_of_part() -> None:
    """All GPUs are alike, and so is whatever each of them has."""
    box = dgx_h100(boxes=4)
    links = [("box0/gpu0--box0/nvswitch", 32), ("box0/gpu0--box0/nic0", 32), ("box0/nic0--ib", 32)]
    assert counts(box, "link", "nic", "gpu") == [*links, ("box0/nic0", 32), ("box0/gpu0", 32)]
    assert counts(box, "switch") == [("box0/nvswitch", 4), ("ib", 1)]
    pairs = failure_cases(box, [], pairs=["nic+nic", "box0/nic0 + box2/gpu1"])
    both = [("box0/nic0 + box0/nic1", 112), ("box0/nic0 + box1/nic0", 384), ("box2/gpu1 + box0/nic0", 1)]
    assert [(str(case.failure), len(case.members)) for case in pairs] == both
    assert [str(case.failure) for case in failure_cases(ring(4), [], derate=["1/3"])] == ["gpu0--gpu1 x 1/3"]


def test_a_broken_box_has_cases_of_its_own() -> None:
    """The other boxes stay alike, and so do the healthy GPUs of the broken one."""
    gpus = counts(dgx_a100(boxes=3).without_node("box1/nic3"), "gpu")
    assert gpus == [("box0/gpu0", 16), ("box1/gpu0", 7), ("box1/gpu3", 1)]


def test_networks_without_nics_have_the_narrowest_ports_for_them() -> None:
    """Of hosts that have only one port it is that."""
    assert counts(fat_tree(4), "nic") == [("host0--pod0/edge0", 16)]
    assert counts(torus(3, 4), "link", "nic", "gpu") == [("gpu0.0--gpu0.1", 12), ("gpu0.0--gpu1.0", 12), ("gpu0.0", 12)]


@settings(max_examples=examples(60))
@given(data=st.data())
def test_cases_are_never_coarser_than_the_orbits_of_all_symmetries(data: st.DataObject) -> None:
    """Compared with every permutation of the nodes of small networks."""
    size = data.draw(st.integers(3, 6))
    ranks = data.draw(st.integers(2, size))
    pairs = [(tail, head) for tail in range(size) for head in range(tail)]
    chosen = data.draw(st.lists(st.sampled_from(pairs), min_size=1, unique=True))
    links = [(str(tail), str(head), data.draw(st.integers(1, 2))) for tail, head in chosen]
    names = [str(node) for node in range(size)]
    network = Topology.from_links(links, compute=names[:ranks], switches=names[ranks:], bidirectional=True)
    rates = {link[:2]: link.bandwidth for link in network.links}
    alike = [
        dict(zip(names, image, strict=True))
        for image in permutations(names)
        if set(image[:ranks]) == set(names[:ranks])
        and {(image[int(tail)], image[int(head)]): rate for (tail, head), rate in rates.items()} == rates
    ]
    members = 0
    for case in failure_cases(network):
        [first] = case.failure.faults
        images = {frozenset(each[node] for node in first.nodes) for each in alike}
        assert {frozenset(each.faults[0].nodes) for each in case.members} <= images
        members += len(case.members)
    assert members == len(chosen) + size


def test_symmetries_that_are_none_are_refused() -> None:
    """Whether they are no permutations, or move links to where there are none."""
    chain = ring(4).without_link("gpu0", "gpu3")
    for mapping in ([0, 0, 1, 2], [1, 2, 3, 0]):
        with pytest.raises(TopologyError, match="symmetry 0 of the failures"):
            Symmetries(chain, [np.array(mapping)])


def test_a_root_is_fixed() -> None:
    """So the ranks of a ring are alike only in pairs."""
    fixed = failure_cases(ring(6), ["gpu"], symmetries=Symmetries(ring(6), fixed=0))
    assert [len(case.members) for case in fixed] == [1, 2, 2, 1]


TWO_BOXES = dgx_a100(boxes=2)


def bandwidths(*scalings: str) -> dict[tuple[str, str], Fraction]:
    """What each link has afterwards, as a share of what it had."""
    changed = scaled_links(TWO_BOXES, scalings)
    pairs = zip(TWO_BOXES.links, changed.links, strict=True)
    return {(old.tail, old.head): new.bandwidth / old.bandwidth for old, new in pairs}


def test_a_class_a_node_and_a_link_are_scaled_and_factors_multiply() -> None:
    """Both directions of the named links change exactly, and no other link does."""
    shares = bandwidths("gpu-nic x 3/2", "box0/nic0 x 1/2", "box0/gpu0--box0/nic0 x 4", "ib--box1/nic3 x 0.1")
    changed = {pair: share for pair, share in shares.items() if share != 1}
    rails = {(f"box{box}/gpu{rank}", f"box{box}/nic{rank}") for box in range(2) for rank in range(8)}
    expected = {pair: Fraction(3, 2) for pair in rails} | {("box0/gpu0", "box0/nic0"): Fraction(3)}
    expected |= {("box0/nic0", "ib"): Fraction(1, 2), ("box1/nic3", "ib"): Fraction(1, 10)}
    assert changed == expected | {pair[::-1]: share for pair, share in expected.items()}


def test_names_that_look_like_factors_are_names() -> None:
    """Of several factors in a text the last one counts."""
    chain = Topology.from_links([("b", "a x 2", 1), ("a x 2", "c", 1)], compute=["b", "a x 2", "c"], bidirectional=True)
    widths = {
        text: [link.bandwidth for link in scaled_links(chain, [text]).links] for text in ("a x 2 x 3", "b--a x 2 x 3")
    }
    assert widths == {"a x 2 x 3": [3, 3, 3, 3], "b--a x 2 x 3": [3, 3, 1, 1]}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("gpu-nic", "expected LINKS x FACTOR"),
        ("gpu-nic x 0", "expected a positive number"),
        ("gpu-nick x 2", "did you mean gpu-nic"),
        ("nic0 x 2", "is ambiguous: box0/nic0, box1/nic0"),
        ("box0/gpu0--box1/gpu0 x 2", "there is no link between"),
    ],
)
def test_what_names_no_links_is_refused(text: str, message: str) -> None:
    """The message names the target or the factor."""
    with pytest.raises(TopologyError, match=message):
        bandwidths(text)


@settings(max_examples=50)
@given(st.sampled_from(["gpu-gpu", "gpu0", "gpu0--gpu1"]), st.fractions(Fraction(1, 99), 99, max_denominator=999))
def test_text_is_read_back(target: str, factor: Fraction) -> None:
    """What is printed means the same, and its inverse takes it back."""
    scaling = Scaling(target, factor)
    assert Scaling.read(str(scaling)) == scaling
    network = ring(4)
    assert scaled_links(scaled_links(network, [scaling]), [Scaling(target, 1 / factor)]) == network


@pytest.mark.parametrize("text", ["-" * 2**16, "--".join("a" * 2**14), "gpu0\n" * 2**14])
def test_long_texts_are_refused_at_once(text: str) -> None:
    """Neither dashes nor equal lines are compared pair by pair."""
    start = time.process_time()
    with pytest.raises(TopologyError):
        Failure.read(ring(4, bandwidth=25), text.splitlines())
    assert time.process_time() - start < 1
