"""The program of uneven pieces: against its closed form, against all roundings, and what it refuses."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations_with_replacement

import pytest

from collopt import solve
from collopt.errors import UnsupportedError
from collopt.formulations import piece_shares
from collopt.formulations.piece_shares import HopKind

BOXES = [HopKind([3, 0]), HopKind([0, 7]), HopKind([0, 21], 0)]


def closed_form(rails: Fraction, boxes: Fraction, steps: int) -> Fraction:
    """Time of geometric pieces, which keep rails busy until the last step."""
    ratio = boxes / rails
    return rails * (1 + ratio ** (steps - 1) * (1 - ratio) / (1 - ratio ** (steps - 1)))


@pytest.mark.parametrize("steps", [2, 3, 5, 8])
def test_pieces_for_rails_are_geometric(steps: int) -> None:
    """The exact optimum is the closed form where rails are the bottleneck."""
    found = solve(piece_shares.build(BOXES, [50, 450], steps)).exact
    assert found.objective == closed_form(Fraction(3, 50), Fraction(21, 450), steps)


def test_pieces_for_boxes_stop_at_what_boxes_need() -> None:
    """Two DGX A100: four steps reach the time in which NVLink carries all."""
    kinds = [HopKind([1, 0]), HopKind([0, 7]), HopKind([0, 7], 0)]
    times = [solve(piece_shares.build(kinds, [25, 300], steps)).exact.objective for steps in (2, 3, 4, 5)]
    assert times[0] == Fraction(1, 25) + Fraction(7, 300)
    assert times[0] > times[1] > times[2] == times[3] == Fraction(14, 300)


def test_no_other_pieces_in_whole_chunks_are_better() -> None:
    """All pieces of twelfths take at least as long, and some of them as long as the best ones if these are twelfths."""
    kinds = [HopKind([2, 1]), HopKind([1, 3], 0)]
    best = solve(piece_shares.build(kinds, [4, 6], 3)).exact.objective
    times = []
    for first in range(13):
        for ends in combinations_with_replacement(range(13), 2):
            rails, inside = (first, 12 - first, 0), (0, ends[0], 12 - ends[0])
            if ends[0] <= first:
                loads = [[2 * x + y, x + 3 * y] for x, y in zip(rails, inside, strict=True)]
                times.append(sum(max(Fraction(a, 48), Fraction(b, 72)) for a, b in loads))
    assert min(times) >= best
    assert float(min(times) / best) < 1.02


@pytest.mark.parametrize(
    ("kinds", "bandwidths", "message"),
    [
        ([HopKind([1], 0)], [1], "kind 0 goes on from 0"),
        ([HopKind([1, 2])], [1], "kind 0 has loads"),
        ([HopKind([-1])], [1], "kind 0 has loads"),
        ([HopKind([1])], [0], "kind 0 has loads"),
        ([], [1], "no kinds"),
        ([HopKind(["x"])], [1], "a load of kind 0"),
    ],
)
def test_malformed_patterns_are_refused(kinds: list[HopKind], bandwidths: list[int], message: str) -> None:
    """One sentence says what is wrong."""
    with pytest.raises(UnsupportedError, match=message):
        piece_shares.build(kinds, bandwidths, 2)
