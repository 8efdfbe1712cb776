"""Small examples of the internal functions of `collopt.solvers`."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from collopt.solvers.flows.concurrent_flow import best_mixture, concurrent_flow, rate_certificate
from collopt.solvers.flows.list_scheduling import list_schedule, split
from collopt.solvers.flows.max_flow import max_flow
from collopt.solvers.flows.path_decomposition import Paths, source_paths
from collopt.solvers.flows.rounding import integral_transport, rounded, rounded_flow
from collopt.solvers.lp.rationals import float_fraction, simplest_between
from collopt.solvers.steps.birkhoff import DECOMPOSITIONS, matchings
from collopt.solvers.steps.graph_costs import kautz_figures, kautz_transpose_factor
from collopt.solvers.steps.load_balancing import busiest_sets, chunked_times, intake
from collopt.solvers.trees.height_reduction import centered, lower_trees
from collopt.solvers.trees.strength import balanced_demands, orient, strength
from collopt.solvers.trees.tight_sets import tight_family
from collopt.solvers.trees.tree_packing import Packing, pack_trees
from collopt.topologies.symmetry.isomorphism import link_orbits


def test_chunked_times() -> None:
    """Two links into each rank of a ring of 4 bring the one shard from the other side, one of its 3 chunks or two."""

    ends = np.array([0, 1, 2, 3, 0, 1, 2, 3]), np.array([1, 2, 3, 0, 3, 0, 1, 2])
    network = intake(4, *ends, np.ones(8, dtype=np.int64))
    assert chunked_times(network, busiest_sets(network), 3) == (Fraction(3, 1), Fraction(2, 1))


def test_kautz_figures() -> None:
    """Compute the BFB figures of one generalized Kautz graph."""
    assert kautz_figures(4, 1024)[:2] == (5, Fraction(341, 256))


def test_kautz_transpose_factor() -> None:
    """Compute the least T_B of a breadth-first schedule on the transpose of one generalized Kautz graph."""
    assert (kautz_figures(2, 9).bandwidth_factor, kautz_transpose_factor(2, 9)) == (Fraction(14, 9), Fraction(10, 9))


def test_intake() -> None:
    """Find all distances, and arrange links and sources by the rank that they lead to."""
    ends = np.arange(4), np.array([1, 2, 3, 0])
    assert intake(4, *ends, np.ones(4, dtype=np.int64)).hops.tolist() == [
        [0, 3, 2, 1],
        [1, 0, 3, 2],
        [2, 1, 0, 3],
        [3, 2, 1, 0],
    ]


def test_busiest_sets() -> None:
    """Two links into each rank of a ring of 4 bring the one shard from the other side."""

    ends = np.array([0, 1, 2, 3, 0, 1, 2, 3]), np.array([1, 2, 3, 0, 3, 0, 1, 2])
    assert [(each.shards, each.width) for each in busiest_sets(intake(4, *ends, np.ones(8, dtype=np.int64)))] == [
        (1, 1),
        (1, 2),
    ]


def test_matchings() -> None:
    """Decompose a matrix, embedded into one of equal row and column sums, into weighted permutations."""
    permutations, weights = matchings(np.array([[0, 3], [1, 0]]), DECOMPOSITIONS["plain"])
    assert (permutations.tolist(), weights.tolist()) == ([[1, 0]], [3])


def test_max_flow() -> None:
    """Compute a maximum flow and a minimum cut."""
    tails, heads = np.array([0, 0, 1, 2]), np.array([1, 2, 3, 3])
    flow = max_flow(4, tails, heads, np.array([3, 2, 2, 4]), 0, 3)
    assert (flow.value, flow.source_side.tolist()) == (4, [True, True, False, False])


def test_integral_transport() -> None:
    """Find a plan with the given sums, near `target` and zero where not `allowed`; None if there is none."""
    assert integral_transport(
        np.array([2, 1]), np.array([1, 2]), np.ones((2, 2)), np.ones((2, 2), dtype=bool)
    ).tolist() == [[1, 1], [0, 1]]


def test_rounded_flow() -> None:
    """Find an integral flow that meets all demands and exceeds a fractional flow on each link as little as possible."""
    assert (
        repr(
            rounded_flow(
                3, np.array([0, 1]), np.array([1, 2]), np.array([2.0000001, 0.9999999]), 0, np.array([0, 1, 1])
            )
        )
        == "array([2, 1])"
    )


def test_float_fraction() -> None:
    """Return the simplest fraction that rounds to a float."""
    assert (float_fraction(0.1), float_fraction(200 / 3), float_fraction(-2.5), float_fraction(1e300) == 10**300) == (
        Fraction(1, 10),
        Fraction(200, 3),
        Fraction(-5, 2),
        False,
    )


def test_simplest_between() -> None:
    """Return the fraction with the smallest denominator in a closed interval, by continued fractions."""
    assert (
        simplest_between(Fraction(31, 100), Fraction(34, 100)),
        simplest_between(Fraction(-1, 2), Fraction(1, 3)),
    ) == (Fraction(1, 3), Fraction(0, 1))


def test_concurrent_flow() -> None:
    """A unidirectional ring of three ranks; each link carries one pair at 1 hop and two pairs at 2 hops."""
    ring = np.array([0, 1, 2]), np.array([1, 2, 0]), np.array([6, 6, 6])
    found = concurrent_flow(3, *ring, np.broadcast_to(1, (3, 3)))
    assert (found.lower, found.upper) == (Fraction(2, 1), Fraction(2, 1))


def test_best_mixture() -> None:
    """Find the mixture of flows that minimizes the maximum load."""
    assert repr(best_mixture(np.array([[1.0, 0.0], [0.0, 3.0]])).round(6)) == "array([0.75, 0.25])"


def test_rate_certificate() -> None:
    """Rank 0 of a unidirectional ring of three, with inaccurate flows."""
    ring = np.array([0, 1, 2]), np.array([1, 2, 0]), np.array([6, 6, 6])
    ones = np.ones((3, 3), dtype=np.int64)
    orbits = link_orbits(*ring, ones, np.array([[1, 2, 0]]))
    bounds = rate_certificate(3, *ring, ones, orbits, np.array([[3.99, 2.01, 0.0]]), 2.0, np.array([0.3]))
    assert [round(float(bound), 2) for bound in bounds] == [1.99, 2.0]


def test_rounded() -> None:
    """Two pairs may each use link 0 or a link of their own; one chunk goes over each link."""
    ways = Paths(np.ones(4, dtype=np.int64), np.arange(5), np.array([0, 1, 0, 2]))
    assert rounded(ways, np.array([0, 0, 1, 1]), np.array([2, 1]), np.ones(3, dtype=np.int64)).tolist() == [1, 1, 0, 1]


def test_source_paths() -> None:
    """Node 0 sends 2 to node 1 and 3 to node 2, of which 1 travels through node 1."""
    tails, heads = np.array([0, 0, 1]), np.array([1, 2, 2])
    assert (
        repr(source_paths(3, tails, heads, np.array([3, 2, 1]), 0, np.array([0, 2, 3])))
        == "Paths(weights=array([2, 2, 1]), starts=array([0, 1, 2, 4]), links=array([0, 1, 0, 2]))"
    )


def test_list_schedule() -> None:
    """Two chunks leave node 0 over link 0; the one that continues over link 1 goes first."""
    assert list_schedule(
        Paths(np.array([1, 1]), np.array([0, 1, 3]), np.array([0, 0, 1])), np.array([1, 1])
    ).tolist() == [1, 0, 1]


def test_split() -> None:
    """Split paths into rows of at most `most` chunks; return them and the path of each row."""
    rows, numbers = split(Paths(np.array([3, 0, 1]), np.array([0, 2, 3, 4]), np.array([7, 8, 9, 7])), 2)
    assert repr(rows) == "Paths(weights=array([2, 1, 1]), starts=array([0, 2, 4, 5]), links=array([7, 8, 7, 8, 7]))"
    assert repr(numbers) == "array([0, 0, 2])"


def test_orient() -> None:
    """A path of two unit links has one tree: half starts at an end, half in the middle, to share the second link."""
    path = 3, 3, np.array([0, 1]), np.array([1, 2]), np.array([1, 1])
    found = orient(*path, strength(*path))
    assert (found.supplies.tolist(), found.forward.tolist(), found.backward.tolist()) == ([1, 1, 0], [1, 2], [1, 0])


def test_balanced_demands() -> None:
    """A path of two unit links, whose strength is 1.  One link leads to each end, so each end needs one of the two."""
    assert balanced_demands(
        3, np.array([0, 1]), np.array([1, 2]), np.array([1, 1]), 2, np.array([0, 2, 0])
    ).tolist() == [1, 0, 1]


def test_strength() -> None:
    """A ring of four unit links: four links between four parts.."""
    ring = np.arange(4)
    assert strength(4, 4, ring, (ring + 1) % 4, np.ones(4, dtype=np.int64)).value == Fraction(4, 3)


def test_centered() -> None:
    """A chain of four ranks from one end becomes a tree of height 2."""
    roots, routes = centered(np.array([0]), np.array([[-1, 0, 1, 2]], dtype=np.int32), np.array([0, 1, 2]), 4)
    assert (roots.tolist(), routes.tolist()) == ([1], [[3, -1, 1, 2]])


def test_lower_trees() -> None:
    """A chain of height 3 and a star become two trees of height 2."""
    tails = np.array([0, 1, 2, 0, 0, 0])
    links = np.array([[-1, 0, 1, 2], [-1, 3, 4, 5]])
    assert lower_trees(Packing(np.array([0, 0]), np.array([1, 1]), links), tails).links.tolist() == [
        [-1, 0, 1, 5],
        [-1, 3, 4, 2],
    ]


def test_tight_family() -> None:
    """Two pairs of ranks, joined by one link each way."""
    tails, heads = np.array([0, 1, 2, 3, 1, 2]), np.array([1, 0, 3, 2, 2, 1])
    assert tight_family(
        4, tails, heads, np.array([3, 3, 3, 3, 2, 2]), np.ones(4, dtype=np.int64)
    ).innermost.tolist() == [1, 1, 2, 2]


def test_pack_trees() -> None:
    """A triangle of unit links holds one tree per root."""
    tails, heads = np.array([0, 1, 1, 2, 2, 0]), np.array([1, 0, 2, 1, 0, 2])
    packing = pack_trees(3, tails, heads, np.ones(6, dtype=np.int64), np.ones(3, dtype=np.int64))
    assert sorted(packing.roots.tolist()) == [0, 1, 2]
