"""Places of keys in arrays and repeats in rows: by sorting, or for long arrays by kernels, which take time to load."""

import numpy as np

from .arrays import BoolArray, IntArray

LONG = 2**17  # entries from which a kernel gains more than loading it takes


def places_of(keys: IntArray, wanted: IntArray) -> IntArray:
    """Return the place in `keys` of each wanted number, int64 (wanted,), -1 for none; all at least 0, no key twice."""
    if len(keys) + len(wanted) >= LONG:
        from .lookup_kernels import hashed_places

        places: IntArray = hashed_places(keys, wanted, int(2 * len(keys)).bit_length())
        return places
    if not len(keys):
        return np.full(len(wanted), -1)
    order = np.argsort(keys)
    places = order[np.minimum(np.searchsorted(keys, wanted, sorter=order), len(keys) - 1)]
    return np.where(keys[places] == wanted, places, -1)


def rows_with_repeats(starts: IntArray, entries: IntArray) -> IntArray:
    """Return the rows, int64, of a table that have an entry twice; row i is ``entries[starts[i]:starts[i + 1]]``."""
    if len(entries) >= LONG:
        from .lookup_kernels import repeats_in_rows

        repeats: BoolArray = repeats_in_rows(starts, entries)
        return np.flatnonzero(repeats)
    rows: IntArray = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    order = np.lexsort((entries, rows))
    again = (np.diff(rows[order]) == 0) & (np.diff(entries[order]) == 0)
    return np.asarray(rows[order[1:]][again])
