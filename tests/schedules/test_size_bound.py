"""Least times at a size are checked from their witnesses alone, and false ones are refused."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import collopt
from collopt.errors import CertificateError
from collopt.schedules import FanOut, RateAndHop, SizeBound, TimedCut, TimedRequest
from collopt.schedules.bounds.size_bound import copying_groups, hop_latencies, shards_to, spreading_time
from collopt.topologies import LINKS_ONLY, RuntimeCosts, Topology, dgx_a100, dgx_h100, ring
from sample_sizes import examples

NETWORK = ring(4, bandwidth=10, latency=1)
TWO = Topology.from_links([("a", "b", 10, 1)], compute="ab", bidirectional=True)


def found(collective: str = "allgather", size: int = 40_000, **options: Any) -> SizeBound:
    """The bound of a small ring."""
    return collopt.bound(options.pop("network", NETWORK), collective, size=size, **options)


def request(network: Topology, collective: str, size: int = 1000, costs: RuntimeCosts = LINKS_ONLY) -> TimedRequest:
    """What witnesses are asked about."""
    return TimedRequest(collopt.bound(network, collective), size, costs)


def test_what_was_found_is_checked() -> None:
    """Three shards of 10 kB over two links of 10 GB/s, after 1 µs."""
    bound = found()
    bound.verify()
    assert (bound.time, bound.argument, bound.algbw, bound.busbw) == (Fraction(5, 2), "flow", 16, 12)
    assert str(bound) == "allgather of 40000 bytes: at least 2.50 µs (links alone), by its flow"
    assert repr(bound) == f"<SizeBound {bound} on ring-4>"


@settings(max_examples=examples(100), deadline=None)
@given(st.data())
def test_no_other_potentials_pass(data: Any) -> None:
    """Raising one potential lets links carry too much, or changes nothing that sources have."""
    bound = found(size=data.draw(st.sampled_from([1, 40_000, 10**7])), costs=RuntimeCosts(alpha=1))
    cut = bound.witness
    if isinstance(cut, RateAndHop):
        return
    assert isinstance(cut, TimedCut)
    place = data.draw(st.integers(0, 3))
    raised = list(cut.potentials)
    raised[place] += data.draw(st.fractions(min_value=Fraction(1, 1000), max_value=100))
    other = replace(bound, witness=replace(cut, potentials=tuple(raised)), time=bound.time + Fraction(1, 10**6))
    with pytest.raises(CertificateError):
        other.verify()


@pytest.mark.parametrize(("changes", "message"), [
    ({"time": Fraction(26, 10)}, "the bound claims .* but its witness shows 5/2 µs"),
    ({"time": 2.5}, "the bound claims 2.5 µs"), ({"num_bytes": 20_000}, "the links can carry"),
    ({"num_bytes": 0}, "the bound is about 0 bytes; expected a positive number"),
    ({"num_bytes": True}, "the bound is about True bytes"),
    ({"costs": RuntimeCosts(launch=1)}, "but its witness shows 7/2 µs"),
    ({"costs": None}, "the bound has None; expected a RuntimeCosts"),
    ({"witness": None}, "the bound has None; expected a TimeWitness"),
    ({"rate": None}, "the bound has None; expected a Bound"),
    ({"topology": ring(4, bandwidth=20, latency=1)}, "not about the bandwidths that data reaches here"),
])  # fmt: skip
def test_false_claims_are_refused(changes: dict[str, Any], message: str) -> None:
    """Every field counts; a bound that claims less than its witness shows is none either."""
    claim = replace(found(), **changes)
    with pytest.raises(CertificateError, match=message):
        claim.verify()


def test_a_false_rate_is_refused() -> None:
    """The bound for endless data is checked too."""
    bound = found()
    with pytest.raises(CertificateError, match="1/x"):
        replace(bound, rate=replace(bound.rate, inverse_rate=Fraction(1))).verify()


@pytest.mark.parametrize(
    ("cut", "message"),
    [
        (TimedCut(frozenset("b"), frozenset("a"), (Fraction(0), Fraction(0), Fraction(0))), "no tuple of 2 potentials"),
        (TimedCut(frozenset("b"), frozenset("a"), [Fraction(0), Fraction(1)]), "no tuple of 2 potentials"),  # type: ignore[arg-type]
        (TimedCut(frozenset("b"), frozenset("a"), (Fraction(0), 1.0)), "a potential of the bound is 1.0"),  # type: ignore[arg-type]
        (
            TimedCut(frozenset("b"), frozenset("a"), (Fraction(1), Fraction(1))),
            "the potential of the sink 'a' is 1; expected at most 0",
        ),
        (TimedCut(frozenset("a"), frozenset("a"), (Fraction(0), Fraction(1))), "'a' among its sources and its sinks"),
        (
            TimedCut(frozenset("b"), frozenset("c"), (Fraction(0), Fraction(1))),
            "the sinks of the bound have 'c'; expected ranks",
        ),
        (
            TimedCut(frozenset(), frozenset("a"), (Fraction(0), Fraction(1))),
            "the sources of the bound have none; expected ranks",
        ),
    ],
)
def test_cuts_that_do_not_fit_are_refused(cut: TimedCut, message: str) -> None:
    """They name ranks, and exact potentials of all nodes."""
    with pytest.raises(CertificateError, match=message):
        cut.least_time(request(TWO, "allgather"))


def test_copies_reach_several_sinks_at_once() -> None:
    """Only data between pairs counts several sinks."""
    names = NETWORK.compute_nodes
    cut = TimedCut(frozenset(names[:2]), frozenset(names[2:]), (Fraction(1), Fraction(1), Fraction(0), Fraction(0)))
    assert cut.least_time(request(NETWORK, "all_to_all")) == 1
    with pytest.raises(CertificateError, match="the bound of a allgather has 2 sinks; expected one"):
        cut.least_time(request(NETWORK, "allgather"))


def test_amounts_by_collective() -> None:
    """Ranks have 3 kB in each of 1000 units of 4 MB on 4 ranks."""
    sources, sink = frozenset(["gpu1", "gpu2"]), frozenset(["gpu0"])
    amounts = {
        name: request(NETWORK, name, 4000).amount(sources, sink)
        for name in ("allgather", "reduce_scatter", "allreduce", "all_to_all")
    }
    assert amounts == {"allgather": 2, "reduce_scatter": 2, "allreduce": 4, "all_to_all": 2}
    uneven = TimedRequest(collopt.bound(NETWORK, "allgather", weights=[1, 0, 4, 3]), 8000, LINKS_ONLY)
    assert uneven.amount(sources, sink) == 4
    rooted = TimedRequest(collopt.bound(NETWORK, "broadcast", root=2), 8000, LINKS_ONLY)
    assert (rooted.amount(sources, sink), rooted.amount(frozenset(["gpu1"]), sink)) == (8, 0)
    traffic = [[0, 1, 2, 3], [4, 0, 5, 6], [7, 8, 0, 9], [1, 1, 1, 0]]
    pairs = TimedRequest(collopt.bound(NETWORK, "all_to_allv", traffic=traffic), 48_000, LINKS_ONLY)
    assert pairs.amount(sources, sink) == 48 * Fraction(4 + 7) / Fraction(48, 4)


def test_no_data_no_bound() -> None:
    """Sources without anything for the sink prove nothing."""
    rooted = TimedRequest(collopt.bound(TWO, "broadcast", root="a"), 1000, LINKS_ONLY)
    with pytest.raises(CertificateError, match="above 0"):
        TimedCut(frozenset("b"), frozenset("a"), (Fraction(0), Fraction(1))).least_time(rooted)


def test_alpha_counts_where_links_leave_ranks() -> None:
    """Links that leave switches have no alpha, and reduced data passes links turned around."""
    star = Topology.from_links(
        [(rank, "sw", 10, 1) for rank in "abc"], compute="abc", switches=["sw"], bidirectional=True
    )
    for collective in ("allgather", "reduce_scatter"):
        links = list(request(star, collective, costs=RuntimeCosts(alpha=5)).links())
        assert [link.delay for link in links if link.tail == "sw"] == [1, 1, 1]
        assert [link.delay for link in links if link.head == "sw"] == [6, 6, 6]
    one_way = ring(3, latency=2, bidirectional=False)
    turned = request(one_way, "reduce_scatter").links()
    assert {(link.tail, link.head) for link in turned} == {(link.head, link.tail) for link in one_way.links}


def spread_by_search(near: int, far: int, send: int, groups: tuple[int, ...], most: int) -> int:
    """Least time by trying all: what matters of a message is whether it makes a group know, or a single rank."""
    best = [10**9]

    def go(begins: tuple[int, ...], left: tuple[int, ...], latest: int) -> None:
        if latest >= best[0]:
            return
        if not left:
            best[0] = latest
            return
        for place, begin in enumerate(begins):
            if place and begins[place - 1] == begin:
                continue
            arrival = begin + far
            rest = [*begins[:place], *begins[place + 1 :], begin + send]
            if left[0] == 1:
                go(tuple(sorted([*rest, arrival])), left[1:], max(latest, arrival))
            else:
                go(
                    tuple(sorted([*rest, arrival, *[arrival + near] * (most - 1)])),
                    left[1:],
                    max(latest, arrival + near),
                )
                after = (*left[1:], *[1] * left[0])  # one message for each of its ranks
                go(begins, after, latest)

    go((0, *[near] * (most - 1)), tuple(sorted(groups, reverse=True)), 0)
    return best[0]


@pytest.mark.parametrize("far", [1, 3, 4])
@pytest.mark.parametrize("send", [0, 1, 2, 5])
def test_spreading_is_the_best_of_all_orders_of_messages(far: int, send: int) -> None:
    """Among single ranks it is exact, up to five others."""
    for others in range(1, 6):
        spread = spreading_time(Fraction(0), Fraction(far), Fraction(send), (1,) * others, 1)
        assert spread == spread_by_search(0, far, send, (1,) * others, 1)


@pytest.mark.parametrize(("near", "far", "send"), list(product([1, 3], [2, 4], [1, 2])))
@pytest.mark.parametrize("groups", [(2,), (3,), (2, 2), (3, 1), (2, 1, 1)])
def test_spreading_to_groups_is_never_more_than_what_can_be_done(
    near: int, far: int, send: int, groups: tuple[int, ...]
) -> None:
    """Groups that share a switch learn all from one message, or rank by rank."""
    most = max(groups)
    spread = spreading_time(Fraction(near), Fraction(far), Fraction(send), tuple(sorted(groups, reverse=True)), most)
    assert far <= spread <= spread_by_search(near, far, send, groups, most)


def test_spreading_in_fractions() -> None:
    """Times are scaled to integers and back: four messages of 1/2 µs, the last begins after 3/2 µs."""
    assert spreading_time(Fraction(9), Fraction(9, 4), Fraction(1, 2), (1,) * 4, 1) == Fraction(9, 4) + Fraction(3, 2)


def test_ranks_around_able_switches_are_groups() -> None:
    """Those of one DGX H100; of a DGX A100 nobody shares a switch that copies."""
    groups = copying_groups(dgx_h100(boxes=2))
    assert set(groups.values()) == {"box0/gpu0", "box1/gpu0"}
    assert all(groups[name] == f"{name[:4]}/gpu0" for name in groups)
    alone = copying_groups(dgx_a100(boxes=2))
    assert all(name == group for name, group in alone.items())


def test_hops_inside_a_group_and_between_two() -> None:
    """NVSwitch twice 0.35 µs; NICs, a switch and NICs 0.35 + 0.5 + 0.5 + 0.35."""
    network = dgx_h100(boxes=2)
    assert hop_latencies(network, copying_groups(network)) == (Fraction(7, 10), Fraction(17, 10))
    alone = dgx_a100(boxes=2)
    assert hop_latencies(alone, copying_groups(alone)) == (Fraction(7, 10), Fraction(7, 10))


def test_fan_out_of_one_box() -> None:
    """A switch that copies makes one message of many: what is left is a hop."""
    costs = RuntimeCosts(alpha=2, send=1)
    able, unable = dgx_h100(boxes=1), dgx_a100(boxes=1)
    times = [FanOut(box.compute_nodes[0]).least_time(request(box, "allgather", costs=costs)) for box in (able, unable)]
    assert times == [Fraction(27, 10), Fraction(54, 10) + 1]


@pytest.mark.parametrize(
    ("root", "message"),
    [("gpu9", "the root of the bound is 'gpu9'; expected a rank"), ("gpu1", "no rank needs anything")],
)
def test_fan_out_of_others_is_refused(root: str, message: str) -> None:
    """The rank exists, and others need its data."""
    rooted = TimedRequest(collopt.bound(NETWORK, "broadcast", root=0), 1000, LINKS_ONLY)
    with pytest.raises(CertificateError, match=message):
        FanOut(root).least_time(rooted)


def test_a_reduction_needs_one_message_of_each_rank() -> None:
    """Its root has nothing to spread, the others reach the root alone."""
    costs = RuntimeCosts(send=5)
    rooted = TimedRequest(collopt.bound(NETWORK, "reduce", root=0), 1000, costs)
    assert FanOut("gpu1").least_time(rooted) == 1
    with pytest.raises(CertificateError, match="no rank needs anything of 'gpu0'"):
        FanOut("gpu0").least_time(rooted)
    assert FanOut("gpu1").least_time(request(NETWORK, "reduce_scatter", costs=costs)) == 1 + 1 + 1


def test_the_rate_needs_one_more_hop() -> None:
    """30 kB over two links of 10 GB/s, and the latency of the last byte."""
    bound = found(size=10**9, costs=RuntimeCosts(alpha=3, launch=7))
    time = RateAndHop().least_time(bound.request)
    assert time == 4 + Fraction(3 * 10**9, 4 * 20 * 1000)
    assert bound.time >= 7 + time


def spread_by_counting(near: int, far: int, send: int, groups: tuple[int, ...], most: int) -> int:
    """The same by whole microseconds: how many ranks can begin a message, and how many messages have come."""
    ready, arrived = [1] + [0] * 200, [0] * 201  # ranks that know from some time on; messages that come then
    ready[near] += most - 1
    for now in range(200):
        begun = sum(ready[start] for start in range(now + 1) if (now - start) % send == 0)
        if now + far <= 200:
            arrived[now + far] += begun
            ready[now + far] += begun
            if now + far + near <= 200:
                ready[now + far + near] += begun * (most - 1)
    for time in range(201):
        knowing = min(sum(arrived[: time - near + 1]) if time >= near else 0, len(groups))
        if sum(arrived[: time + 1]) >= knowing + sum(sorted(groups)[: len(groups) - knowing]):
            return time
    raise AssertionError


@pytest.mark.parametrize(("near", "far", "send"), list(product([1, 2, 7], [2, 4], [1, 2, 3])))
@pytest.mark.parametrize("groups", [(3, 3, 3, 3), (8, 8, 8), (4, 4, 2, 1, 1), (1,) * 20, (2,) * 12])
def test_spreading_counts_all_that_can_help(near: int, far: int, send: int, groups: tuple[int, ...]) -> None:
    """Ranks of groups that know send too, the first at once and the others a hop later."""
    for most in (max(groups), max(groups) + 1):
        spread = spreading_time(Fraction(near), Fraction(far), Fraction(send), groups, most)
        assert spread == spread_by_counting(near, far, send, groups, most)


def two_stars(**abilities: Any) -> Topology:
    """Three ranks around a switch, two around the next, which ``f`` hears from only; ``g`` is apart."""
    links = [*((rank, "near", 10, 1) for rank in "abc"), *((rank, "far", 10, 1) for rank in "de")]
    links += [("near", "far", 10, 5), *((rank, "apart", 10, 3) for rank in "adfg")]
    both = [*links, *((head, tail, *more) for tail, head, *more in links)]
    return Topology.from_links(
        [*both, ("far", "f", 10, 1), ("f", "g", 10, 1)],
        compute="abcdefg",
        switches=["near", "far", "apart"],
        **{name: [switch] for name, switch in abilities.items()},
    )


@pytest.mark.parametrize("ability", ["multicast", "aggregation"])
def test_groups_are_whoever_a_switch_can_serve(ability: str) -> None:
    """A switch serves ranks through other switches in either direction, but not through ranks."""
    assert copying_groups(two_stars(**{ability: "far"})) == {**dict.fromkeys("abcdef", "a"), "g": "g"}
    assert set(copying_groups(two_stars()).values()) == set("abcdefg")
    chain = Topology.from_links(
        [
            ("a", "s", 1),
            ("s", "b", 1),
            ("b", "a", 1),
            ("a", "c", 1),
            ("c", "a", 1),
            ("c", "s", 1),
            ("s", "d", 1),
            ("d", "c", 1),
        ],
        compute="abcd",
        switches=["s"],
        **{ability: ["s"]},
    )
    assert set(copying_groups(chain).values()) == {"a"}


def test_larger_groups_save_more_messages() -> None:
    """Groups are told of in the order of their sizes, whatever the order of their ranks."""
    spokes = [*(("b", "s"), ("c", "t"), ("d", "t"), ("e", "t"), ("f", "u"), ("g", "u"))]
    links = [(*ends, 10, 1) for ends in [*spokes, ("a", "b"), ("a", "c"), ("a", "f")]]
    network = Topology.from_links(links, compute="abcdefg", switches="stu", multicast="tu", bidirectional=True)
    costs = RuntimeCosts(send=2)
    least = FanOut("a").least_time(request(network, "allgather", costs=costs))
    assert least == spreading_time(Fraction(1), Fraction(1), Fraction(2), (3, 2, 1), 3)


def test_parts_of_nothing_need_no_message() -> None:
    """Only pairs with traffic of an all_to_allv count, those of the rank itself included."""
    costs = RuntimeCosts(send=10)
    traffic = [[5, 1, 0, 1], [1, 0, 0, 0], [1, 1, 1, 1], [0, 0, 0, 1]]
    asked = TimedRequest(collopt.bound(NETWORK, "all_to_allv", traffic=traffic), 1000, costs)
    assert [shards_to(asked, rank) for rank in NETWORK.compute_nodes] == [
        ["gpu1", "gpu3"],
        ["gpu0"],
        ["gpu0", "gpu1", "gpu3"],
        [],
    ]


def test_the_shortest_link_counts_beside_the_rate() -> None:
    """The busiest link is unknown, so the least latency is added."""
    links = [("a", "b", 10, 1), ("b", "c", 10, 4), ("c", "a", 10, 2)]
    network = Topology.from_links(links, compute="abc", bidirectional=True)
    asked = request(network, "allgather", 3000)
    assert RateAndHop().least_time(asked) == 1 + Fraction(3000) / (asked.rate.algbw * 1000)
