"""Places of keys in arrays and repeats in rows: by sorting, or for long arrays by kernels, once they are compiled."""

from collections.abc import Callable

import numpy as np

from .arrays import BoolArray, IntArray
from .kernels import is_ready, kernel

LONG = 2**17  # entries from which a kernel gains more than loading it takes,
HUGE = 2**23  # and than compiling it


def places_of(keys: IntArray, numbers: IntArray) -> IntArray:
    """Return the place in `keys` of each wanted number, int64 (wanted,), -1 for none; all at least 0, no key twice."""
    if _gains(hashed_places, len(keys) + len(numbers)):
        places: IntArray = hashed_places(keys, numbers, int(2 * len(keys)).bit_length())
        return places
    if not len(keys):
        return np.full(len(numbers), -1)
    order = np.argsort(keys)
    places = order[np.minimum(np.searchsorted(keys, numbers, sorter=order), len(keys) - 1)]
    return np.where(keys[places] == numbers, places, -1)


def rows_with_repeats(starts: IntArray, entries: IntArray) -> IntArray:
    """Return the rows, int64, of a table that have an entry twice; row i is ``entries[starts[i]:starts[i + 1]]``."""
    if _gains(repeats_in_rows, len(entries)):
        repeats: BoolArray = repeats_in_rows(starts, entries)
        return np.flatnonzero(repeats)
    rows: IntArray = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    order = np.lexsort((entries, rows))
    again = (np.diff(rows[order]) == 0) & (np.diff(entries[order]) == 0)
    return np.asarray(rows[order[1:]][again])


def _gains(function: Callable[..., object], entries: int) -> bool:
    return entries >= HUGE or (entries >= LONG and is_ready(function))


SHORT = 32  # entries of a row that are compared with each other instead of sorted


@kernel
def hashed_places(keys: IntArray, numbers: IntArray, bits: int) -> IntArray:
    """Find each wanted number among distinct keys by a table of ``2**bits`` entries; -1 for none, all at least 0."""
    table = np.full(1 << bits, -1, dtype=np.int64)
    mask, shift = (1 << bits) - 1, np.uint64(64 - bits)
    spread = np.uint64(0x9E3779B97F4A7C15)
    for place in range(len(keys)):
        slot = np.int64((np.uint64(keys[place]) * spread) >> shift)
        while table[slot] >= 0:
            slot = (slot + 1) & mask
        table[slot] = place
    places = np.full(len(numbers), -1, dtype=np.int64)
    for number in range(len(numbers)):
        slot = np.int64((np.uint64(numbers[number]) * spread) >> shift)
        while table[slot] >= 0:
            if keys[table[slot]] == numbers[number]:
                places[number] = table[slot]
                break
            slot = (slot + 1) & mask
    return places


@kernel
def repeats_in_rows(starts: IntArray, entries: IntArray) -> BoolArray:
    """Return which rows of a table have an entry twice; row i is ``entries[starts[i]:starts[i + 1]]``."""
    repeats = np.zeros(len(starts) - 1, dtype=np.bool_)
    for row in range(len(repeats)):
        own = entries[starts[row] : starts[row + 1]]
        if len(own) > SHORT:
            own = np.sort(own)
            for place in range(len(own) - 1):
                repeats[row] |= own[place] == own[place + 1]
        else:
            for place in range(len(own)):
                for other in range(place):
                    repeats[row] |= own[place] == own[other]
    return repeats
