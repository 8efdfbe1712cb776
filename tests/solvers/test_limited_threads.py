"""How many threads solves use that do not say so themselves."""

from __future__ import annotations

import pytest

from collopt.errors import UnsupportedError
from collopt.solvers import HighsOptions, limited_threads


def test_solves_within_take_the_number_and_others_do_not() -> None:
    """A number that is given to a solve counts more."""
    with limited_threads(2):
        assert HighsOptions().settings()["threads"] == 2
        assert HighsOptions(threads=1).settings()["threads"] == 1
        with limited_threads(3):
            assert HighsOptions().settings()["threads"] == 3
        assert HighsOptions().settings()["threads"] == 2
    assert "threads" not in HighsOptions().settings()


@pytest.mark.parametrize("threads", [0, -1, 1.5, True, "2"])
def test_what_is_no_number_of_threads_is_refused(threads: object) -> None:
    """Before anything is solved."""
    with pytest.raises(UnsupportedError, match="threads is"), limited_threads(threads):  # type: ignore[arg-type]
        pass
