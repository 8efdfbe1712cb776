"""Ranks by number and by name."""

from __future__ import annotations

import numpy as np
import pytest

from collopt.errors import UnsupportedError
from collopt.topologies import Topology
from collopt.topologies.network.links import as_root, rank_number

STAR = Topology.from_links([("a", "s", 1), ("s", "b", 1)], compute=["a", "b"], switches=["s"], bidirectional=True)


@pytest.mark.parametrize(("given", "number"), [(0, 0), (1, 1), (np.int64(1), 1), ("a", 0), ("b", 1)])
def test_a_rank_is_found_by_number_and_by_name(given: object, number: int) -> None:
    """Its number is Python's own."""
    assert rank_number(STAR.compute_nodes, given) == as_root(STAR.compute_nodes, given) == number
    assert type(rank_number(STAR.compute_nodes, given)) is int


@pytest.mark.parametrize("given", [-1, 2, "s", "c", "", "0", True, 1.0, None, ["a"]])
def test_what_is_no_rank_is_not_found(given: object) -> None:
    """A switch is no rank, and nor is a number as text."""
    assert rank_number(STAR.compute_nodes, given) is None
    with pytest.raises(UnsupportedError, match=r"^root .* is not a rank; expected 0\.\.1 or a name such as 'a'$"):
        as_root(STAR.compute_nodes, given)
