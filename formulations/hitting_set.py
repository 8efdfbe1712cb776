"""Fewest faulty parts that explain which runs were slow: a minimum hitting set, with routes that are not observed.

A run crosses the parts of one of its routes: a slow run a faulty part, a fast run none.  With one route for every run
this is the minimum hitting set problem (Karp, 1972), from which fast runs have removed parts.

==================  =========================================================  =================================
name                meaning                                                    equation
==================  =========================================================  =================================
variables
``faulty``          1 for a part that is faulty                                z(c), integral
``route``           1 for a route of a fast run that may have been taken       y(p), integral
constraints
``hit``             a slow run has a faulty part on one of its routes          sum of z(c) over its parts >= 1
``routed``          a fast run took one of its routes                          sum of y(p) over its routes >= 1
``cleared``         a route that a fast run took has no faulty part            y(p) + z(c) <= 1
==================  =========================================================  =================================

The objective is the sum of z(c), to be minimized.  Stated in `Blocks`.
"""

from collections.abc import Collection, Sequence
from itertools import chain

import numpy as np

from ..errors import UnsupportedError
from ..support.validation import as_whole, is_whole, shown
from .blocks import BlockModel, Blocks

__all__ = ["build"]

Route = Collection[int]


def build(num_parts: int, slow: Sequence[Sequence[Route]], fast: Sequence[Sequence[Route]] = ()) -> BlockModel:
    """State the fewest faulty parts that explain slow and fast runs.

    Raises `UnsupportedError` if the arguments are not of this form.

    Parameters
    ----------
    num_parts : int
        Parts are 0 to below this number.
    slow, fast : sequence of runs
        Each with its possible routes, and each of these a collection of parts.

    Examples
    --------
    Runs over parts 0 and 1, and 1 and 2, were slow; part 0 also lies on a fast run:

    >>> from collopt import solve
    >>> model = build(3, slow=[[(0, 1)], [(1, 2)]], fast=[[(0,)]])
    >>> [int(value) for value in solve(model).values["faulty"]]
    [0, 1, 0]
    """
    count = as_whole(num_parts, "num_parts")
    for run in chain(slow, fast):
        for part in chain.from_iterable(run):
            if not is_whole(part) or not 0 <= part < count:
                raise UnsupportedError(f"a route has part {shown(part)}; expected 0 to {count - 1}")
    blocks = Blocks(f"slow parts of {len(slow)} slow and {len(fast)} fast runs")
    faulty = blocks.variables("faulty", count, upper=1.0, integral=True)
    suspects = [sorted(set(chain.from_iterable(run))) for run in slow]
    rows = np.repeat(np.arange(len(slow)), [len(parts) for parts in suspects])
    columns = faulty[np.fromiter(chain.from_iterable(suspects), np.int64)]
    blocks.constraint("hit", len(slow), [(rows, columns, 1.0)], lower=1.0)
    runs = np.repeat(np.arange(len(fast)), [len(run) for run in fast])
    routes = list(chain.from_iterable(fast))
    took = blocks.variables("route", len(routes), upper=1.0, integral=True)
    blocks.constraint("routed", len(fast), [(runs, took, 1.0)], lower=1.0)
    crossed = [(place, part) for place, route in enumerate(routes) for part in sorted(set(route))]
    places, parts = np.array(crossed, dtype=np.int64).reshape(-1, 2).T
    pairs = np.arange(len(crossed))
    blocks.constraint("cleared", len(crossed), [(pairs, took[places], 1.0), (pairs, faulty[parts], 1.0)], upper=1.0)
    model = BlockModel(blocks)
    model.minimize([(faulty, 1.0)])
    return model
