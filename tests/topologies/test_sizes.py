"""Sizes asked of the builders."""

from __future__ import annotations

import numpy as np
import pytest

from collopt.errors import TopologyError
from collopt.support.validation import MAX_LINKS, as_size, check_links


def test_whole_numbers_within_the_limits_are_sizes() -> None:
    """Numpy integers become Python ones."""
    assert as_size(1, "boxes") == 1
    assert as_size(9, "boxes", least=9, most=9) == 9
    assert type(as_size(np.int64(3), "boxes")) is int


@pytest.mark.parametrize(
    "wrong", [0, -1, 5, True, 2.0, "2", None, [2], pytest.param(10**5000, id="5001 digits"), float("nan")]
)
def test_anything_else_is_refused(wrong: object) -> None:
    """The message says the limits."""
    with pytest.raises(TopologyError, match=r"^boxes is .*; expected a whole number from 1 to 4$"):
        as_size(wrong, "boxes", most=4)


def test_a_network_too_large_to_build_is_refused_before_it_is_built() -> None:
    """The limit itself is fine."""
    check_links(MAX_LINKS, "ring")
    with pytest.raises(TopologyError, match=r"ring would have 1048577 links; expected at most 1048576"):
        check_links(MAX_LINKS + 1, "ring")
