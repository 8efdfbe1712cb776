"""Chiefs of relayed tokens: all dealt out, none by servers that do not want them, and near the best by brute force."""

from __future__ import annotations

from itertools import product

import numpy as np
import numpy.typing as npt
from hypothesis import given, settings
from hypothesis import strategies as st

from collopt.solvers.steps.dispatch import chief_quotas
from sample_sizes import examples

IntArray = npt.NDArray[np.int64]


def sends_of(once: IntArray, quotas: IntArray) -> IntArray:
    """Tokens that each server sends: each of its own once, and as a chief to all others that want it."""
    sends = once.copy()
    for (_, subset, chief), tokens in np.ndenumerate(quotas):
        sends[chief] += tokens * (int(subset).bit_count() - 1)
    return sends


def fewest_sends(once: IntArray, tokens: list[tuple[int, int]]) -> int:
    """Sends of the busiest server, by all chiefs of all tokens one by one, given by server and set of others."""
    members = [[chief for chief in range(len(once)) if (subset | 1 << own) >> chief & 1] for own, subset in tokens]
    least = 2**62
    for chiefs in product(*members):
        sends = once.copy()
        for (_, subset), chief in zip(tokens, chiefs, strict=True):
            sends[chief] += subset.bit_count() - 1
        least = min(least, int(sends.max()))
    return least


def given_by(n: int, tokens: list[tuple[int, int]]) -> tuple[IntArray, IntArray]:
    """Count tokens that leave each server, and those of each class."""
    classes = np.zeros((n, 2**n), dtype=np.int64)
    for own, subset in tokens:
        classes[own, subset] += 1
    return classes[:, 1:].sum(axis=1), classes


@st.composite
def few_tokens(draw: st.DrawFn) -> tuple[int, list[tuple[int, int]]]:
    """Up to six tokens of two to four servers."""
    n = draw(st.integers(2, 4))
    kinds = [(own, subset) for own in range(n) for subset in range(1, 2**n) if not subset >> own & 1]
    return n, draw(st.lists(st.sampled_from(kinds), max_size=6))


@settings(max_examples=examples(100))
@given(few_tokens())
def test_chiefs_of_few_tokens_are_near_the_best(given_tokens: tuple[int, list[tuple[int, int]]]) -> None:
    """A server sends at most one token's copies more than with the best chiefs."""
    n, tokens = given_tokens
    once, classes = given_by(n, tokens)
    quotas = chief_quotas(once, classes, 0)
    assert np.array_equal(quotas.sum(axis=2)[:, 1:], classes[:, 1:])
    assert sends_of(once, quotas).max() <= fewest_sends(once, tokens) + max(n - 2, 0)


counts = st.integers(0, 50) | st.integers(0, 2**40)


@settings(max_examples=examples(200))
@given(st.integers(2, 5), st.data())
def test_water_filling_ends(n: int, data: st.DataObject) -> None:
    """Whatever the levels round to: a chief at the level joined and left those below it in turn, forever."""
    classes = np.zeros((n, 2**n), dtype=np.int64)
    for own, subset in product(range(n), range(1, 2**n)):
        classes[own, subset] = 0 if subset >> own & 1 else data.draw(counts)
    once, target = classes.sum(axis=1), data.draw(counts)
    quotas = chief_quotas(once, classes, target)
    assert quotas.min() >= 0
    assert np.array_equal(quotas.sum(axis=2)[:, 1:], classes[:, 1:])
    for own, subset, chief in zip(*np.nonzero(quotas), strict=True):
        assert chief == own or subset >> chief & 1
    alone = once + (classes * [max(subset.bit_count() - 1, 0) for subset in range(2**n)]).sum(axis=1)
    assert sends_of(once, quotas).max() <= alone.max()
