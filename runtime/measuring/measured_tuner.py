"""Files that choose the algorithm that was measured to be the fastest at each size."""

from __future__ import annotations

import os
from collections.abc import Mapping
from itertools import groupby

from ...errors import UnsupportedError
from ...schedules import TREE_COLLECTIVES, Collective
from ...support.formatting import abbreviated_names
from ...support.validation import as_kind, as_whole, shown
from ..nccl.tuner import ALGORITHMS, ANY, MAX_BYTES, PROTOCOLS, Window, write_windows
from .measured_times import MeasuredTimes


def write_measured_tuner(
    sweeps: Mapping[str, MeasuredTimes],
    path: str | os.PathLike[str],
    *,
    boxes: int = ANY,
    num_ranks: int | None = None,
    form: str = "nccl",
) -> None:
    """Write the fastest of several measured algorithms for each range of sizes.

    A range begins at the first size at which its algorithm was the fastest, and ends before the next one; the first
    begins at 0, and the last ends as in NCCL's own example.  Only sizes that all sweeps have count.  Raises
    `UnsupportedError` if sweeps are not of one collective on the same ranks, or an algorithm is none of NCCL's.

    Parameters
    ----------
    sweeps : mapping of str to MeasuredTimes
        By the algorithm and protocol that NCCL was held to, such as ``"ring ll128"``: the results of runs with
        ``NCCL_ALGO`` and ``NCCL_PROTO``, as `read_nccl_tests` reads them.
    path : path
        File to write.
    boxes : int
        That the file is for; -1, the default, is any.
    num_ranks : int, optional
        Of sweeps that do not say.
    form : {"nccl", "ncclx-csv", "ncclx-json", "ucc"}
        As for `write_nccl_tuner`.
    """
    if not isinstance(sweeps, Mapping) or not sweeps:
        raise UnsupportedError(f"the sweeps are {shown(sweeps)}; expected such as {{'ring simple': times}}")
    kinds = {name: _kind(name) for name in sweeps}
    for name, times in sweeps.items():
        as_kind(times, MeasuredTimes, f"the sweep {name!r}")
    collectives = list(dict.fromkeys(times.collective for times in sweeps.values()))
    stated = {times.num_ranks for times in sweeps.values() if times.num_ranks is not None}
    ranks = {*stated, *(() if num_ranks is None else (as_whole(num_ranks, "num_ranks"),))}
    if len(collectives) > 1 or len(ranks) > 1:
        what = abbreviated_names([*map(str, collectives), *(f"{count} ranks" for count in sorted(ranks))])
        raise UnsupportedError(f"the sweeps are of {what}; expected one collective on the same ranks")
    collective = collectives[0]
    if not ranks or not isinstance(collective, Collective) or collective not in TREE_COLLECTIVES:
        raise UnsupportedError(
            f"the sweeps are of {collective} on {', '.join(map(str, ranks)) or 'an unknown number of'} ranks; expected "
            f"{', '.join(map(str, TREE_COLLECTIVES))}, and num_ranks where they do not say"
        )
    best = _fastest(sweeps)
    starts = [(next(sizes)[0], name) for name, sizes in groupby(best.items(), key=lambda item: item[1])]
    ends = [start - 1 for start, _ in starts[1:]] + [max(MAX_BYTES, *best)]
    windows = [
        Window(start if number else 0, end, kinds[name][0], protocol=kinds[name][1])
        for number, ((start, name), end) in enumerate(zip(starts, ends, strict=True))
    ]
    write_windows(path, collective, windows, ranks.pop(), as_whole(boxes, "boxes", low=-1), form)


def _kind(name: object) -> tuple[str, str]:
    """Algorithm and protocol."""
    words = name.lower().split() if isinstance(name, str) else []
    if len(words) != 2 or words[0] not in ALGORITHMS or words[1] not in PROTOCOLS:
        raise UnsupportedError(
            f"a sweep is called {shown(name)}; expected an algorithm, {', '.join(ALGORITHMS)}, and a protocol, "
            f"{', '.join(PROTOCOLS)}"
        )
    return words[0], words[1]


def _fastest(sweeps: Mapping[str, MeasuredTimes]) -> dict[int, str]:
    """Name of the sweep with the least time at each size that all have; of equal ones the first."""
    tables: dict[str, dict[int, float]] = {}
    for name, times in sweeps.items():
        table = tables.setdefault(name, {})
        for row in times.right().rows:
            table[row.size] = min(row.microseconds, table.get(row.size, row.microseconds))
    common = sorted(set.intersection(*(set(table) for table in tables.values())) - {0})
    if not common:
        raise UnsupportedError("the sweeps have no size in common; expected runs over the same sizes")
    return {size: min(tables, key=lambda name: tables[name][size]) for size in common}
