"""Marks the cases of a test that `make test` leaves to CI, because others show the same in less time."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest

__all__ = ["slow_where"]


def slow_where(cases: Iterable[Any], condition: Callable[[Any], bool]) -> list[Any]:
    """Mark those cases as ``slow`` that the condition holds for; a tuple has a value for each argument.

    >>> [len(case.marks) for case in slow_where([3, 1000], lambda size: size > 100)]
    [0, 1]
    """
    return [
        pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=pytest.mark.slow if condition(case) else ())
        for case in cases
    ]
