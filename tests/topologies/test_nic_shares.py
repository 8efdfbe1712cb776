"""How network cards divide the links on the way to their GPUs."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import given, settings
from hypothesis import strategies as st

from collopt.topologies.switched.nic_shares import UNLIMITED, Share, max_min_shares, share_notes
from collopt.topologies.switched.scale_out import SharedLink
from sample_sizes import examples


def link(bandwidth: int, *ways: tuple[int, int]) -> SharedLink:
    """A link on the ways of some cards."""
    return SharedLink("a PCIe link", Fraction(bandwidth), ways)


@st.composite
def cases(draw: st.DrawFn) -> tuple[list[int], list[Fraction | None], list[SharedLink]]:
    """Cards with their ports, and links on which some of the ways to their nodes lead."""
    near = draw(st.lists(st.integers(1, 4), min_size=1, max_size=6))
    speeds = st.none() | st.sampled_from([Fraction(1, 8), Fraction(25), Fraction(50), Fraction(100)])
    ports = [draw(speeds) for _ in near]
    links = []
    for _ in range(draw(st.integers(0, 5))):
        cards = draw(st.sets(st.integers(0, len(near) - 1), min_size=1))
        ways = tuple((card, draw(st.integers(1, near[card]))) for card in sorted(cards))
        links.append(link(draw(st.integers(1, 120)), *ways))
    return near, ports, links


@settings(max_examples=examples(200))
@given(cases())
def test_no_link_can_be_exceeded_and_none_is_wasted(
    case: tuple[list[int], list[Fraction | None], list[SharedLink]],
) -> None:
    """Whichever GPUs are busy, and though every card reaches all that it has; who has less than its ports is stopped
    by a full link, on which nobody has more."""
    near, ports, links = case
    shares = max_min_shares(near, ports, links)
    for way in links:
        assert (
            sum(min(shares[card].bandwidth, count * shares[card].near_bandwidth) for card, count in way.paths)
            <= way.bandwidth
        )
    for card, share in enumerate(shares):
        most = UNLIMITED if ports[card] is None else ports[card]
        assert most is not None
        assert 0 < share.bandwidth <= most
        assert share.near_bandwidth <= share.bandwidth <= share.near_bandwidth * near[card]
        assert (share.limit is None) is (share.bandwidth == most)
        if share.limit is not None:
            ways = dict(share.limit.paths)
            full = sum(shares[other].bandwidth * count / near[other] for other, count in ways.items())
            assert full == share.limit.bandwidth
            assert share.bandwidth == max(shares[other].bandwidth for other in ways)


def test_cards_that_are_stopped_elsewhere_leave_their_part() -> None:
    """The first is held at 10 GB/s by its own link, so the second gets 50 of 60."""
    shares = max_min_shares([1, 1], [Fraction(90)] * 2, [link(10, (0, 1)), link(60, (0, 1), (1, 1))])
    assert [share.bandwidth for share in shares] == [10, 50]


def test_many_cards_of_one_kind_are_told_in_one_note() -> None:
    """Of six, four are named."""
    own = [link(10, (card, 1)) for card in range(6)]
    ports: list[Fraction | None] = [Fraction(25)] * 6
    assert share_notes(max_min_shares([1] * 6, ports, own), ports) == [
        "nic0, nic1, nic2, nic3 and 2 more are modeled with 10 of 25 GB/s, because a PCIe link has 10 GB/s"
    ]
    assert share_notes([Share(Fraction(5), Fraction(5), own[0])], [None]) == []
