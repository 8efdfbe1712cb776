"""Partitions around switches that loop back bound every allreduce: brute force, boxes, and what is refused."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from functools import reduce
from heapq import heappop, heappush
from itertools import combinations, product
from operator import or_

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import collopt
from collopt.errors import CertificateError, ColloptError
from collopt.schedules import Bound, Crossing, LoopbackPartition
from collopt.topologies import SwitchLimits, Topology, dgx_h100, gb200_nvl72
from sample_sizes import examples


def network(
    ranks: str, switches: dict[str, str], direct: Sequence[str] = (), *, copying: str = "", adding: str = ""
) -> Topology:
    """Ranks around switches, some of which copy or add and then loop back, and joined directly in pairs."""
    links = [(rank, switch, 1) for switch, near in switches.items() for rank in near]
    links += [(pair[0], pair[1], 1) for pair in direct]
    limits = [SwitchLimits(switch, loopback=True) for switch in sorted({*copying, *adding})]
    return Topology.from_links(
        links,
        compute=ranks,
        switches=[*switches],
        bidirectional=True,
        multicast=copying,
        aggregation=adding,
        limits=limits,
    )


Operations = set[tuple[int, tuple[int, ...], tuple[int, ...]]]


def operations_of(topology: Topology, parties: Sequence[frozenset[str]]) -> Operations:
    """All operations between ranks: the borders of parties that they cross, the ranks that send and that receive.

    A switch hands on the message of one rank, copies it to several, or adds up what several know for one; copies and
    sums use the links of the rank that asks too.
    """
    ranks = topology.compute_nodes
    party_of = {rank: number for number, party in enumerate(parties) for rank in party & set(ranks)}
    operations: Operations = {
        (2 * (party_of[link.tail] != party_of[link.head]), (ranks.index(link.tail),), (ranks.index(link.head),))
        for link in topology.links
        if {link.tail, link.head} <= set(ranks)
    }
    for switch in topology.switch_nodes:
        near = [ranks.index(link.head) for link in topology.out_links(switch)]
        for one, size in product(near, range(1, len(near))):
            for several in combinations([rank for rank in near if rank != one], size):
                if switch in topology.multicast or size == 1:
                    operations.add((size + 1 + (size > 1), (one,), several))
                if switch in topology.aggregation:
                    operations.add((size + 1 + (size > 1), several, (one,)))
    return operations


def least_crossings(topology: Topology, parties: Sequence[frozenset[str]]) -> int:
    """Least crossings after which every rank knows what all know, by Dijkstra's algorithm over what each knows."""
    operations, count = operations_of(topology, parties), topology.num_ranks
    waiting = [(0, tuple(1 << rank for rank in range(count)))]
    done: set[tuple[int, ...]] = set()
    while True:
        cost, state = heappop(waiting)
        if state == ((1 << count) - 1,) * count:
            return cost
        if state in done:
            continue
        done.add(state)
        for more, sources, targets in operations:
            sent = reduce(or_, (state[source] for source in sources))
            after = tuple(own | sent if rank in targets else own for rank, own in enumerate(state))
            if after not in done:
                heappush(waiting, (cost + more, after))


@pytest.mark.parametrize(("ranks", "crossings"), [("ab", 4), ("abc", 8), ("abcd", 10)])
def test_around_one_switch_no_operations_take_less(ranks: str, crossings: int) -> None:
    """Of n > 2 ranks 2 n + 2, with copies to some ranks and sums of some, too."""
    star = network(ranks, {"s": ranks}, copying="s", adding="s")
    witness = LoopbackPartition(tuple(frozenset(node) for node in star.nodes))
    assert least_crossings(star, witness.parts) == crossings
    assert witness.verify(star, "allreduce") == Crossing(Fraction(crossings * len(ranks)), Fraction(2 * len(ranks)))


@given(st.data())
@settings(max_examples=examples(20), deadline=None)
def test_no_operations_cross_parts_less_than_the_bound_says(data: st.DataObject) -> None:
    """Up to four ranks in any parts, up to three switches around some that copy, add, both or none, and links."""
    ranks = "abcd"[: data.draw(st.integers(3, 4))]
    some = st.sets(st.sampled_from(ranks), min_size=2).map(sorted).map("".join)
    switches = {switch: data.draw(some) for switch in "stu"[: data.draw(st.integers(1, 3))]}
    pairs = ["".join(pair) for pair in combinations(ranks, 2)]
    direct = data.draw(st.lists(st.sampled_from(pairs), unique=True, max_size=3))
    abilities = [data.draw(st.sets(st.sampled_from([*switches])).map("".join)) for _ in range(2)]
    topology = network(ranks, switches, direct, copying=abilities[0], adding=abilities[1])
    labels = [data.draw(st.integers(0, 3)) for _ in ranks]
    parties = [frozenset(rank for rank, own in zip(ranks, labels, strict=True) if own == n) for n in set(labels)]
    try:
        bound = Bound.from_witness(topology, "allreduce", LoopbackPartition((*parties, frozenset(switches))))
        tight = collopt.bound(topology, "allreduce")
    except ColloptError:
        return  # one part, or ranks out of reach
    crossings = bound.witness.crossing(topology, "allreduce").amount / len(ranks)
    assert crossings <= least_crossings(topology, parties)
    assert collopt.plan(topology, "allreduce").algbw <= min(tight.algbw, bound.algbw)


def test_a_switch_that_only_adds_saves_in_one_direction() -> None:
    """Beside a plain switch and links: each byte crosses 8 times, over 28 GB/s of all links of three ranks."""
    topology = network("abc", {"s": "ab", "t": "abc", "u": "abc"}, ["ab", "ac", "bc"], adding="t")
    bound, plan = collopt.bound(topology, "allreduce"), collopt.plan(topology, "allreduce")
    assert (bound.algbw, plan.gap, type(bound.witness)) == (Fraction(7, 2), 0, LoopbackPartition)


@pytest.mark.parametrize(("topology", "algbw"), [(dgx_h100(), 400), (gb200_nvl72(), Fraction(64800, 73))])
def test_one_box_is_optimal_at_n_of_n_plus_one_of_its_links(topology: Topology, algbw: Fraction) -> None:
    """The bound of all schedules, which a plan reaches."""
    bound = collopt.bound(topology, "allreduce")
    bound.verify()
    assert (bound.algbw, bound.scope, type(bound.witness)) == (algbw, "all schedules", LoopbackPartition)
    assert "for allreduces" not in str(bound)
    with pytest.raises(CertificateError, match="but its witness shows"):
        replace(bound, inverse_rate=bound.inverse_rate * Fraction(101, 100)).verify()


RELAY = SwitchLimits("t", relay=True)
BESIDE = Topology.from_links(
    [*((rank, "s", 1) for rank in "abc"), ("s", "t", 1), *((rank, "t", 1) for rank in "cde")],
    compute="abcde",
    switches="st",
    bidirectional=True,
    multicast="st",
    aggregation="st",
    limits=[SwitchLimits(switch, loopback=True) for switch in "st"],
)


@pytest.mark.parametrize(
    ("topology", "parts", "reason"),
    [
        (replace(BESIDE, limits=()), "a b c d e s t", "which does not loop back"),
        (BESIDE, "a b c d e st", "next to one that copies or adds"),
        (BESIDE, "a b c d e s t", "next to one that copies or adds"),
        (BESIDE, "a b c dt e s", "'t' next to one"),
        (
            replace(BESIDE, multicast=frozenset("s"), aggregation=frozenset("s")),
            "a b c dt e s",
            "'t' next to one",
        ),
        (
            replace(BESIDE, multicast=frozenset("s"), aggregation=frozenset("s"), limits=[*BESIDE.limits[:1], RELAY]),
            "a b c d e st",
            "relay 't' next to one",
        ),
        (BESIDE, "abcdest", "one part of the bound's partition contains all ranks"),
    ],
)
def test_switches_that_may_do_more_are_refused(topology: Topology, parts: str, reason: str) -> None:
    """Those without loopback, and two in a row, which hand each other sums that nobody reads."""
    with pytest.raises(CertificateError, match=reason):
        LoopbackPartition(tuple(map(frozenset, parts.split()))).check(topology)
    LoopbackPartition((frozenset("abst"), frozenset("c"), frozenset("de"))).check(topology)
