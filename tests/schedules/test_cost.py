"""Sizes as people write them, and predicted times worked out by hand."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collopt.errors import UnsupportedError
from collopt.planners import plan
from collopt.schedules import Forest, as_bytes, busiest_links, congestion, schedule_time
from collopt.topologies import Topology, mi250, ring
from strategies import eulerian_topologies, switch_free_topologies

RING = Topology.from_links(
    [(f"gpu{rank}", f"gpu{(rank + 1) % 4}", 25, latency) for rank, latency in enumerate(["1/2", 1, "1/3", 2])],
    compute=[f"gpu{rank}" for rank in range(4)],
)
"""Four ranks in a directed ring; latencies differ."""


def chains() -> Forest:
    """Each root's data goes once around the ring."""
    return Forest.from_paths(
        4, 1, [(root, 1, [((root + hop) % 4, (root + hop + 1) % 4) for hop in range(3)]) for root in range(4)]
    )


@pytest.mark.parametrize(("size", "expected"), [
    (1, 1), (4096, 4096), (10**18 - 1, 10**18 - 1), (np.int64(7), 7), (np.uint8(255), 255), ("1", 1), ("4096", 4096),
    ("007", 7), ("1K", 2**10), ("1k", 2**10), ("64KB", 64_000), ("2.5gb", 2_500_000_000), (1e6, 10**6),
    (np.float64(4096), 4096), ("64KiB", 2**16), ("64kib", 2**16), ("1M", 2**20), ("0.5M", 2**19), ("2.5G", 5 * 2**29),
    ("1 G", 2**30), (" 1G ", 2**30), ("3T", 3 * 2**40), ("12B", 12), ("0.001953125M", 2048),
    ("909494T", 909494 * 2**40),
])  # fmt: skip
def test_sizes_are_read_as_nccl_tests_reads_them(size: int | str, expected: int) -> None:
    """Powers of 1024 by one letter or with iB, and of 1000 with B alone."""
    assert as_bytes(size) == expected
    assert type(as_bytes(size)) is int


@pytest.mark.parametrize("size", [
    0, -1, True, False, 0.5, 2.5, float("inf"), None, [1], b"1G", np.float64("nan"), np.bool_(True), Fraction(4), "",
    " ", "0", "0G", "-1", "+1", "1.5", "1.5B", "0.3K", "1e9", "1P", "1E", "K", "1KK", "1Gb/s", "1,000", "1_000",
    "0x10", "inf", "nan", "1.", ".5K", "1\n2", "١", "1.0000000001K", -(10**5000), "1" + " " * 10**6 + "2",
], ids=lambda size: type(size).__name__)  # fmt: skip
def test_other_sizes_are_refused(size: object) -> None:
    """One line shows the size, cut short, and the expected form."""
    with pytest.raises(
        UnsupportedError, match=r"is not understood; expected bytes such as 4096, '64K', '1M' or '2\.5G'$"
    ) as caught:
        as_bytes(size)  # type: ignore[arg-type]
    assert len(str(caught.value)) < 250
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "size",
    [10**18, np.uint64(2**64 - 1), 10**5000, "1" * 19, "1000000000000000000.0", "1" * 10**6, "999999999999T"],
    ids=lambda size: type(size).__name__,
)
def test_sizes_that_are_too_large_are_refused_with_the_limit(size: int | str) -> None:
    """Numbers and texts beyond the limit are refused alike."""
    with pytest.raises(UnsupportedError, match=r" is too large; expected less than 10\^18 bytes$") as caught:
        as_bytes(size)
    assert len(str(caught.value)) < 250


def test_latency_is_that_of_the_slowest_way_from_a_root() -> None:
    """The latency is the largest of the four sums around the ring."""
    assert chains().latency(RING) == max(
        Fraction(1) + Fraction(1, 3) + 2, Fraction(1, 3) + 2 + Fraction(1, 2), 2 + Fraction(1, 2) + 1
    )


def test_time_is_latency_and_what_the_busiest_link_carries() -> None:
    """1 GB in all is 250 MB per shard; three shards cross each link of 25 GB/s in 30 ms."""
    assert schedule_time(chains(), RING, 10**9) == Fraction(7, 2) + 30_000
    assert schedule_time(chains(), RING, 1) == Fraction(7, 2) + Fraction(3, 4 * 25 * 1000)


def test_latency_counts_the_links_through_switches() -> None:
    """A chain over the star, longer than the trees beside it; three copies leave rank 2 over 10 GB/s."""
    star = Topology.from_links(
        [(f"gpu{rank}", "sw", 10, rank) for rank in range(3)] + [("sw", f"gpu{rank}", 10, "1/4") for rank in range(3)],
        compute=[f"gpu{rank}" for rank in range(3)],
        switches=["sw"],
    )
    trees = [(0, 1, [(0, 3, 2), (2, 3, 1)]), (1, 1, [(1, 3, 0), (1, 3, 2)]), (2, 1, [(2, 3, 0), (2, 3, 1)])]
    made = Forest.from_paths(3, 1, trees)
    assert made.latency(star) == 0 + Fraction(1, 4) + 2 + Fraction(1, 4)
    assert schedule_time(made, star, 3000) == Fraction(5, 2) + 1 * Fraction(3, 10)


def test_awkward_latencies_stay_exact() -> None:
    """Their common denominator is beyond 64 bits."""
    latencies = [Fraction(1, 999_999_999_989), Fraction(1, 999_999_999_961), Fraction(10**12), Fraction(1, 7)]
    awkward = Topology.from_links(
        [(f"gpu{rank}", f"gpu{(rank + 1) % 4}", 25, latency) for rank, latency in enumerate(latencies)],
        compute=[f"gpu{rank}" for rank in range(4)],
    )
    assert chains().latency(awkward) == sum(latencies) - min(latencies)
    assert chains().latency(RING.scaled(3)) == chains().latency(RING)


def test_latencies_beyond_64_bits_only_when_added_up_stay_exact() -> None:
    """Each fits, three of them do not."""
    latency = Fraction(10**12) - Fraction(1, 2_500_001)
    scale = latency.denominator
    assert latency.numerator < 2**63 < 4 * latency.numerator
    long = ring(4, bandwidth=25, latency=latency, bidirectional=False)
    assert chains().latency(long) == 3 * latency
    assert scale == 2_500_001


def test_estimates_are_the_same_times_as_floats() -> None:
    """`Plan.estimate` reads the size and converts once."""
    made = plan(mi250(boxes=2), "allgather")
    exact = schedule_time(made.schedule, made.topology, 2**30)
    assert made.estimate("1G") == made.estimate(2**30) == float(exact)
    assert exact > Fraction(2**30) / made.algbw / 1000
    with pytest.raises(UnsupportedError, match="not understood"):
        made.estimate("much")


TWO_SPEEDS = Topology.from_links([("a", "b", "5/2"), ("b", "c", 4), ("c", "a", "5/2"), ("a", "c", 4)], compute="abc")


def test_the_most_loaded_for_its_speed_decides() -> None:
    """4 copies on 2.5 GB/s take longer than 6 on 4 GB/s."""
    assert congestion(np.array([4, 6, 3, 5]), 2, TWO_SPEEDS) == Fraction(4, 2) / Fraction(5, 2)
    assert busiest_links(np.array([4, 6, 3, 5]), TWO_SPEEDS).tolist() == [0]


def test_links_of_different_speeds_can_be_equally_busy() -> None:
    """5 on 2.5 GB/s and 8 on 4 GB/s; in the order of the links."""
    assert busiest_links(np.array([5, 7, 4, 8]), TWO_SPEEDS).tolist() == [0, 3]


def test_nothing_takes_no_time() -> None:
    """All links are equally idle."""
    assert congestion(np.zeros(4, dtype=np.int64), 1, TWO_SPEEDS) == 0
    assert busiest_links(np.zeros(4, dtype=np.int64), TWO_SPEEDS).tolist() == [0, 1, 2, 3]


def test_products_may_be_larger_than_any_machine_number() -> None:
    """Loads near 2^62 on capacities near 2^40, told apart by one part in 2^62."""
    topology = Topology.from_links([("a", "b", "1000000.000001"), ("b", "a", "999999.999999")], compute="ab")
    loads = np.array([2**62, 2**62 - 2])
    ratios = [Fraction(int(load)) / link.bandwidth for load, link in zip(loads, topology.links, strict=True)]
    assert congestion(loads, 3, topology) == max(ratios) / 3
    assert busiest_links(loads, topology).tolist() == [ratios.index(max(ratios))]


@given(st.one_of(eulerian_topologies(max_bandwidth=4), switch_free_topologies()), st.integers(1, 9), st.data())
def test_rates_are_those_of_one_fraction_per_link(topology: Topology, trees: int, data: st.DataObject) -> None:
    """The largest of all, and who has it."""
    links = topology.links
    loads = data.draw(st.lists(st.integers(0, 12), min_size=len(links), max_size=len(links)))
    ratios = [Fraction(load, trees) / link.bandwidth for load, link in zip(loads, links, strict=True)]
    assert congestion(np.array(loads), trees, topology) == max(ratios)
    expected = [number for number, ratio in enumerate(ratios) if ratio == max(ratios)]
    assert busiest_links(np.array(loads), topology).tolist() == expected
