"""How many threads solves use that do not say so themselves."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from collopt.errors import UnsupportedError
from collopt.formulations import throughput
from collopt.solvers import HighsOptions, limited_threads, solve
from collopt.topologies import ring


def test_solves_within_take_the_number_and_others_do_not() -> None:
    """A number that is given to a solve counts more."""
    with limited_threads(2):
        assert HighsOptions().settings()["threads"] == 2
        assert HighsOptions(threads=1).settings()["threads"] == 1
        with limited_threads(3):
            assert HighsOptions().settings()["threads"] == 3
        assert HighsOptions().settings()["threads"] == 2
    assert "threads" not in HighsOptions().settings()


def test_other_threads_of_the_program_are_left_alone() -> None:
    """The number is that of whoever asked for it."""
    with limited_threads(2), ThreadPoolExecutor(1) as pool:
        assert "threads" not in pool.submit(lambda: HighsOptions().settings()).result()


def test_the_number_may_change_between_solves() -> None:
    """HiGHS has one scheduler, which has to be told."""
    for threads in (1, 2, 1):
        with limited_threads(threads):
            assert solve(throughput.build(ring(4, bandwidth=30))).exact.objective == 20


@pytest.mark.parametrize("threads", [0, -1, 1.5, True, "2"])
def test_what_is_no_number_of_threads_is_refused(threads: object) -> None:
    """Before anything is solved."""
    with pytest.raises(UnsupportedError, match="threads is"), limited_threads(threads):  # type: ignore[arg-type]
        pass
