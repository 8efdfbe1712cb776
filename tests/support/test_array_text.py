"""Integer arrays as text."""

from __future__ import annotations

import zlib
from base64 import b64encode
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collopt.errors import FileFormatError
from collopt.support.arrays import MAX_LAG, decode_integers, encode_integers
from sample_sizes import examples

ANY_NUMBER = st.integers(-(2**63), 2**63 - 1)


@settings(max_examples=examples(60))
@given(st.lists(st.one_of(st.integers(-300, 300), ANY_NUMBER), max_size=50))
def test_every_list_of_numbers_comes_back(numbers: list[int]) -> None:
    """From none to the largest and smallest of 64 bits, whose differences do not fit."""
    assert decode_integers(encode_integers(numbers), len(numbers), "numbers").tolist() == numbers


@settings(max_examples=examples(20))
@given(st.integers(1, MAX_LAG), st.integers(0, 2**32), st.integers(1, 9))
def test_numbers_that_grow_from_period_to_period_take_little_text(period: int, seed: int, step: int) -> None:
    """As the ends of links do in equal boxes: their differences at the period are found to be the same."""
    pattern = np.random.default_rng(seed).integers(0, 2**20, period)
    numbers = (np.arange(30_000 // period)[:, None] * step + pattern).astype(np.int32)
    encoded = encode_integers(numbers)
    assert len(str(encoded["zlib"])) < 5 * period + 400
    assert np.array_equal(decode_integers(encoded, numbers.shape, "numbers"), numbers)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"type": "float64"}, "type"),
        ({"lag": -1}, "lag"),
        ({"lag": True}, "lag"),
        ({"lag": MAX_LAG + 1}, "lag"),
        ({"zlib": "no base64!"}, "cannot be decompressed"),
        ({"zlib": "AAAA"}, "cannot be decompressed"),
        ({"zlib": 7}, "cannot be decompressed"),
        ({"type": "uint16"}, "has 3 bytes; expected numbers of 6 bytes"),
        ({"zlib": b64encode(zlib.compress(bytes(2**26))).decode()}, "more than 3 bytes"),
        ({"zlib": b64encode(zlib.compress(bytes(3)) + b"more").decode()}, "more than 3 bytes"),
        ({"zlib": b64encode(zlib.compress(bytes(3))[:-1]).decode()}, "no end"),
        ({"more": 1}, "with the fields type, lag and zlib"),
    ],
)
def test_other_objects_are_refused(change: dict[str, Any], problem: str) -> None:
    """Each field is checked, and a text that would unpack to gigabytes is not unpacked."""
    with pytest.raises(FileFormatError, match=rf"^links\.tails .*{problem}"):
        decode_integers({**encode_integers([1, 2, 3]), **change}, 3, "links.tails")


@pytest.mark.parametrize(("least", "most", "wrong"), [(2, 9, 1), (0, 2, 3), (2, None, 1)])
def test_numbers_outside_the_limits_are_named(least: int, most: int | None, wrong: int) -> None:
    """The smallest, or the largest."""
    with pytest.raises(FileFormatError, match=f"^links has the number {wrong}; expected whole numbers"):
        decode_integers(encode_integers([[1], [2], [3]]), (3, 1), "links", low_limit=least, high_limit=most)
