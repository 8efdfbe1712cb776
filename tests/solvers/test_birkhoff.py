"""Birkhoff decompositions: exact totals, legal steps, on matrices of all kinds."""

from __future__ import annotations

import networkx as nx
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collopt.solvers.steps.birkhoff import DECOMPOSITIONS, matchings
from sample_sizes import examples

IntArray = npt.NDArray[np.int64]

WAYS = pytest.mark.parametrize("way", DECOMPOSITIONS)


@st.composite
def matrices(draw: st.DrawFn) -> IntArray:
    """Random, Zipf, sparse, with one hot row or column, already balanced, or tiny ones."""
    n = draw(st.integers(1, 12))
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    kind = draw(st.sampled_from(["random", "zipf", "sparse", "hot row", "hot column", "balanced", "tiny"]))
    matrix = random.integers(0, 10**9, (n, n))
    if kind == "zipf":
        skew = draw(st.floats(0.4, 0.9))
        matrix = random.permutation(10**9 / np.arange(1, n * n + 1) ** skew).reshape(n, n).astype(np.int64)
    elif kind == "sparse":
        matrix *= random.random((n, n)) < 0.2
    elif kind == "hot row":
        matrix[random.integers(n)] *= 50
    elif kind == "hot column":
        matrix[:, random.integers(n)] *= 50
    elif kind == "balanced":
        matrix = sum(
            (np.eye(n, dtype=np.int64)[random.permutation(n)] * size for size in range(1, 5)),
            np.zeros((n, n), dtype=np.int64),
        )
    elif kind == "tiny":
        matrix %= 3
    return matrix


def decompose(matrix: IntArray, way: str = "plain") -> tuple[IntArray, IntArray]:
    """Call the compiled decomposition on any integer matrix."""
    permutations, weights = matchings(np.ascontiguousarray(matrix, dtype=np.int64), DECOMPOSITIONS[way])
    return permutations.astype(np.int64), weights


def largest_sum(matrix: IntArray) -> int:
    """The exact lower bound."""
    return int(max(matrix.sum(axis=0).max(), matrix.sum(axis=1).max()))


def check(matrix: IntArray, permutations: IntArray, weights: IntArray) -> None:
    """Add everything up."""
    n = len(matrix)
    total = np.zeros_like(matrix)
    for permutation, weight in zip(permutations, weights, strict=True):
        assert sorted(permutation) == list(range(n))
        assert weight > 0
        total[np.arange(n), permutation] += weight
    assert int(weights.sum()) == largest_sum(matrix)
    assert (total >= matrix).all()
    assert len(weights) <= n * n - 2 * n + 2
    heavy = matrix.sum(axis=1) == largest_sum(matrix)
    assert np.array_equal(total[heavy], matrix[heavy])  # only light rows are raised


@WAYS
@given(matrix=matrices())
@settings(max_examples=examples(150))
def test_weights_add_up_to_the_largest_sum_on_any_matrix(way: str, matrix: IntArray) -> None:
    """Neither more nor less, in at most n^2 - 2n + 2 steps."""
    check(matrix, *decompose(matrix, way))


@WAYS
@pytest.mark.parametrize("n", [63, 64, 65, 130])
def test_decomposes_matrices_at_the_ends_of_words(way: str, n: int) -> None:
    """Columns are kept as bits of 64-bit words."""
    random = np.random.default_rng(n)
    check(matrix := random.integers(0, 30, (n, n)) * (random.random((n, n)) < 0.1), *decompose(matrix, way))


@given(matrix=matrices())
@settings(max_examples=examples(60))
def test_fewest_takes_the_widest_matching_first(matrix: IntArray) -> None:
    """However light rows and columns are raised no perfect matching has a larger least entry, by networkx."""
    n = len(matrix)
    _, weights = decompose(matrix, "fewest")
    if not len(weights):
        return
    rows, columns = (largest_sum(matrix) - matrix.sum(axis=axis) for axis in (1, 0))
    raised = matrix + np.minimum.outer(rows, columns)
    wider = nx.Graph()
    wider.add_nodes_from(range(2 * n))
    wider.add_edges_from((row, n + column) for row, column in np.argwhere(raised > weights[0]).tolist())
    assert len(nx.bipartite.maximum_matching(wider, top_nodes=range(n))) // 2 < n
    assert (np.diff(weights) <= 0).all()


@WAYS
def test_nothing_takes_no_steps(way: str) -> None:
    """Zeros, and a matrix without rows."""
    for size in (0, 1, 4):
        permutations, weights = decompose(np.zeros((size, size), dtype=np.int64), way)
        assert permutations.shape == (0, size)
        assert len(weights) == 0
