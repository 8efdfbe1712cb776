"""Bandwidths of links times factors, as people type them."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collopt.errors import TopologyError
from collopt.topologies import Scaling, Topology, dgx_a100, ring, scaled_links

BOX = dgx_a100(boxes=2)


def bandwidths(*scalings: str) -> dict[tuple[str, str], Fraction]:
    """What each link has afterwards, as a share of what it had."""
    changed = scaled_links(BOX, scalings)
    pairs = zip(BOX.links, changed.links, strict=True)
    return {(old.tail, old.head): new.bandwidth / old.bandwidth for old, new in pairs}


def test_a_class_a_node_and_a_link_are_scaled_and_factors_multiply() -> None:
    """Both directions, exactly, and nothing else."""
    shares = bandwidths("gpu-nic x 3/2", "box0/nic0 x 1/2", "box0/gpu0--box0/nic0 x 4", "ib--box1/nic3 x 0.1")
    changed = {pair: share for pair, share in shares.items() if share != 1}
    rails = {(f"box{box}/gpu{rank}", f"box{box}/nic{rank}") for box in range(2) for rank in range(8)}
    expected = {pair: Fraction(3, 2) for pair in rails} | {("box0/gpu0", "box0/nic0"): Fraction(3)}
    expected |= {("box0/nic0", "ib"): Fraction(1, 2), ("box1/nic3", "ib"): Fraction(1, 10)}
    assert changed == expected | {pair[::-1]: share for pair, share in expected.items()}


def test_names_that_look_like_factors_are_names() -> None:
    """The last factor is meant."""
    chain = Topology.from_links([("b", "a x 2", 1), ("a x 2", "c", 1)], compute=["b", "a x 2", "c"], bidirectional=True)
    widths = {
        text: [link.bandwidth for link in scaled_links(chain, [text]).links] for text in ("a x 2 x 3", "b--a x 2 x 3")
    }
    assert widths == {"a x 2 x 3": [3, 3, 3, 3], "b--a x 2 x 3": [3, 3, 1, 1]}


def test_nothing_changes_without_scalings() -> None:
    """The very same network."""
    assert scaled_links(BOX, []) is BOX


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("gpu-nic", "expected LINKS x FACTOR"),
        (" x 2", "expected LINKS x FACTOR"),
        ("gpu-nic x 0", "expected a positive number"),
        ("gpu-nic x fast", "the factor of gpu-nic is 'fast'"),
        ("gpu-nick x 2", "did you mean gpu-nic"),
        ("nic0 x 2", "is ambiguous: box0/nic0, box1/nic0"),
        ("box0/gpu0--box1/gpu0 x 2", "there is no link between"),
        ("box0/gpu0--nic77 x 2", "is not a node"),
    ],
)
def test_what_names_no_links_is_refused(text: str, message: str) -> None:
    """With what was expected."""
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
