"""What a chunk is made of, in words."""

from __future__ import annotations

from collections import Counter

import pytest
from runtime_forests import exchange, random_schedule

from collopt.runtime import lower
from collopt.runtime.programs.interpret import GARBAGE, describe_contents, symbolic_inputs


@pytest.mark.parametrize(
    ("terms", "poisoned", "text"),
    [
        ({(2, 0): 1, (2, 1): 1, (2, 2): 1}, False, "chunk 2 of all ranks"),
        ({(2, 0): 1, (2, 2): 2}, False, "chunk 2 of ranks 0, 2 (2 times) without 1"),
        (
            {(0, 0): 1, (0, 1): 1, (0, 2): 1, (1, 1): 1},
            False,
            "chunk 0 of all ranks plus chunk 1 of ranks 1 without 0, 2",
        ),
        ({(0, 0): 1}, True, "chunk 0 of ranks 0 without 1, 2 plus garbage"),
        ({}, True, "nothing"),
    ],
)
def test_sums_are_described_by_what_is_missing_and_what_is_double(
    terms: dict[tuple[int, int], int], poisoned: bool, text: str
) -> None:
    """Three ranks."""
    program = lower(random_schedule("reduce", 3, 3, 0), "reduce")
    assert describe_contents(Counter(terms | {GARBAGE: 1} if poisoned else terms), program.layout) == text


def test_what_is_only_moved_is_named_by_its_owner() -> None:
    """The second chunk of an allgather of two ranks is rank 1's first."""
    program = exchange()
    assert describe_contents(symbolic_inputs(program.layout)[1][0], program.layout) == "chunk 0 of rank 1"
