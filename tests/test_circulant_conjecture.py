"""The counter-examples to Conjecture 1, and what the search of the example covers."""

from __future__ import annotations

import runpy
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from collopt.planners.direct_connect import bfb
from collopt.topologies import DirectGraph

EXAMPLES = Path(__file__).parents[1] / "examples"
EXAMPLE = EXAMPLES / "circulant_conjecture.py"


@pytest.fixture(scope="module")
def example() -> dict[str, Any]:
    """The names of the example."""
    return runpy.run_path(str(EXAMPLE))


def circulant(n: int, offsets: tuple[int, ...]) -> DirectGraph:
    """C(n, offsets), made here."""
    arcs = [(node, (node + sign * a) % n) for node in range(n) for a in offsets for sign in (1, -1)]
    return DirectGraph.from_arcs(n, arcs, "circulant")


def test_fifteen_nodes_with_three_offsets_refute_the_conjecture(example: dict[str, Any]) -> None:
    """Six sources share four links, where all links together would have 8/6 each."""
    violation = example["worst_violation"](15, (1, 4, 5))
    assert violation.distance == 2
    # No source of the set has a shortest path over the links ±5, counted on the graph.
    distances = circulant(15, (1, 4, 5)).distances
    assert all(distances[source, last] != 1 for source in violation.sources for last in (5, 10))
    assert violation.sources == (2, 3, 7, 8, 12, 13)
    assert sorted(violation.links) == [-4, -1, 1, 4]
    assert (violation.load, violation.even_load) == (Fraction(6, 4), Fraction(8, 6))


def test_smallest_counter_example_has_twelve_nodes(example: dict[str, Any]) -> None:
    """Among all connected circulant graphs with at most 12 nodes, whatever their offsets, one fails."""
    found = [example["search"](k, range(3, 13)) for k in range(1, 6)]
    assert [search.counter_examples for search in found] == [0, 0, 0, 1, 0]
    assert found[3].smallest == (12, (1, 3, 4, 5))


@pytest.mark.parametrize(
    ("n", "offsets"), [(15, (1, 4, 5)), (12, (1, 3, 4, 5)), (18, (1, 5, 6)), (16, (3, 4)), (13, (1, 5, 6))]
)
def test_solver_agrees_with_the_example(example: dict[str, Any], n: int, offsets: tuple[int, ...]) -> None:
    """The exact load balancing of the package is bandwidth-optimal exactly where the example finds no violation."""
    optimal = bfb.bfb_cost(circulant(n, offsets)).bandwidth_factor == Fraction(n - 1, n)
    assert optimal == (example["worst_violation"](n, offsets) is None)


@pytest.mark.parametrize(
    ("k", "largest", "graphs", "counter_examples"), [(2, 40, 1978, 0), (3, 28, 1926, 80), (4, 20, 502, 4)]
)
def test_search_covers_what_the_page_says(
    example: dict[str, Any], k: int, largest: int, graphs: int, counter_examples: int
) -> None:
    """Two offsets never fail, as the paper proves; with three and four some do."""
    found = example["search"](k, range(3, largest + 1))
    assert (found.graphs, found.counter_examples) == (graphs, counter_examples)
    assert found.smallest == {2: None, 3: (15, (1, 4, 5)), 4: (12, (1, 3, 4, 5))}[k]


def test_the_script_prints_what_it_covered(example: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    """Counts and counter-examples of the default search; a search over nothing is none."""
    with pytest.raises(SystemExit):
        example["main"](["--up-to", "2"])
    assert "at least 3 nodes" in capsys.readouterr().err
    example["main"]([])
    printed = capsys.readouterr().out
    assert "load 6/4 > 8/6" in printed
    assert "load 3/6 > 3/8" in printed
    assert "searched  410 connected circulant graphs, 3 offsets, up to 20 nodes" in printed
    assert "refuting  9 graphs, 3 up to multiplication" in printed


@pytest.fixture(scope="module")
def census() -> dict[str, Any]:
    """The names of the example that counts."""
    return runpy.run_path(str(EXAMPLES / "circulant_census.py"))


@pytest.mark.parametrize(("k", "largest"), [(2, 40), (3, 26)])
def test_census_counts_what_the_search_finds(
    example: dict[str, Any], census: dict[str, Any], k: int, largest: int
) -> None:
    """Offsets instead of links, one set of many, bits instead of lists: the numbers are the same at each size."""
    for n in range(2 * k + 1, largest + 1):
        searched, counted = example["search"](k, [n]), census["census"](n, k)
        assert (counted.graphs, counted.failing) == (searched.graphs, searched.counter_examples)


@pytest.mark.parametrize(("n", "k", "graphs", "failing"), [(200, 3, 137540, 2080), (211, 3, 187460, 2730)])
def test_census_of_a_larger_size(census: dict[str, Any], n: int, k: int, graphs: int, failing: int) -> None:
    """A size of four words of bits, a prime one and one with many divisors; the least diameter is reached."""
    found = census["census"](n, k)
    assert (found.graphs, found.failing) == (graphs, failing)
    assert found.least_diameter == found.least_optimal_diameter
