"""How fast loads let a schedule be, against one fraction per link."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from collopt.schedules import busiest_links, congestion
from collopt.topologies import Topology
from strategies import eulerian_topologies, switch_free_topologies

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
