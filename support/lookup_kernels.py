"""Kernels of `collopt.support.lookup` for long arrays: places of keys by open addressing, repeats in rows."""

import numpy as np

from .arrays import BoolArray, IntArray
from .kernels import kernel

SHORT = 32  # entries of a row that are compared with each other instead of sorted


@kernel
def hashed_places(keys: IntArray, wanted: IntArray, bits: int) -> IntArray:
    """Find each wanted number among distinct keys by a table of ``2**bits`` entries; -1 for none, all at least 0."""
    table = np.full(1 << bits, -1, dtype=np.int64)
    mask, shift = (1 << bits) - 1, np.uint64(64 - bits)
    spread = np.uint64(0x9E3779B97F4A7C15)
    for place in range(len(keys)):
        slot = np.int64((np.uint64(keys[place]) * spread) >> shift)
        while table[slot] >= 0:
            slot = (slot + 1) & mask
        table[slot] = place
    found = np.full(len(wanted), -1, dtype=np.int64)
    for number in range(len(wanted)):
        slot = np.int64((np.uint64(wanted[number]) * spread) >> shift)
        while table[slot] >= 0:
            if keys[table[slot]] == wanted[number]:
                found[number] = table[slot]
                break
            slot = (slot + 1) & mask
    return found


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
