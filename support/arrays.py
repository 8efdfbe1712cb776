"""Array types, read-only views, components of graphs, places of keys, and arrays as text in files."""

import zlib
from base64 import b64decode, b64encode
from collections.abc import Callable, Collection, Mapping
from math import prod
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from ..errors import FileFormatError
from .kernels import is_ready, kernel
from .validation import is_int, shown

IntArray = npt.NDArray[np.int64]
SmallArray = npt.NDArray[np.int32]
ShortArray = npt.NDArray[np.int16]
RandomArray = npt.NDArray[np.uint64]
FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]

Item = TypeVar("Item", bound=np.generic)
DENSE = 8  # times the keys that a table of all numbers up to the largest key may have
TYPES = ("uint8", "int8", "uint16", "int16", "uint32", "int32", "int64")  # the first that fits is used
FIELDS = {"type", "lag", "zlib"}
WINDOW = 2**12  # numbers at the start, in the middle and at the end that choose the lag
MAX_LAG = 2**9


def read_only(array: npt.NDArray[Item]) -> npt.NDArray[Item]:
    """Return a read-only view of an array, or the array itself if it is read-only already."""
    if not array.flags.writeable:
        return array
    view = array.view()
    view.flags.writeable = False
    return view


def distinct(keys: IntArray) -> tuple[IntArray, IntArray]:
    """Sort and number the distinct keys, none of them negative; faster than `numpy.unique` where they are small."""
    size = int(keys.max()) + 1
    if size > DENSE * len(keys):
        return np.unique(keys, return_inverse=True)
    there = np.zeros(size, dtype=np.bool_)
    there[keys] = True
    return np.flatnonzero(there), (np.cumsum(there) - 1)[keys]


def joined_rows(rows: Collection[Collection[int]]) -> tuple[IntArray, IntArray]:
    """Put rows one after the other: where each begins and the last one ends, int64 (rows + 1,), and their numbers."""
    starts = np.cumsum([0, *map(len, rows)], dtype=np.int64)
    return starts, np.array([number for row in rows for number in row], dtype=np.int64)


def distances_from(starts: IntArray | int, size: int, tails: IntArray, heads: IntArray) -> IntArray:
    """Links on the shortest way from the nearest of some nodes to each, -1 where there is none; int64 (size,)."""
    distances = np.full(size, -1, dtype=np.int64)
    distances[starts] = distance = 0
    while len(fresh := heads[(distances[tails] == distance) & (distances[heads] < 0)]):
        distance += 1
        distances[fresh] = distance
    return distances


def components(size: int, pairs: npt.ArrayLike) -> IntArray:
    """Number the components that pairs of nodes join, (pairs, 2), by their first nodes; int64 (size,)."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    tails, heads = np.asarray(pairs, dtype=np.int64).reshape(-1, 2).T
    graph = coo_array((np.ones(len(tails), dtype=np.bool_), (tails, heads)), shape=(size, size))
    return np.asarray(connected_components(graph, directed=False)[1], dtype=np.int64)


def orbits(images: IntArray) -> IntArray:
    """Number the orbits that permutations generate, by their first members; (generators, size) gives (size,)."""
    count, size = images.shape
    return components(size, np.column_stack((np.tile(np.arange(size), count), images.ravel())))


def narrow(numbers: IntArray) -> npt.NDArray[np.unsignedinteger]:
    """Return numbers from 0 on in the narrowest type; those of up to 16 bits are sorted by digits, in linear time."""
    return numbers.astype(np.min_scalar_type(numbers.max(initial=0)))


def encode_integers(array: npt.ArrayLike) -> dict[str, str | int]:
    """Encode integers of any shape, row by row, as an object for `json.dumps`; `decode_integers` needs the shape."""
    numbers = np.asarray(array, dtype=np.int64).ravel()
    windows = [numbers[start : start + WINDOW] for start in (0, len(numbers) // 2, max(0, len(numbers) - WINDOW))]
    lag = min({0, 1, _period(windows)}, key=lambda lag: (sum(len(_packed(window, lag)[1]) for window in windows), lag))
    kind, packed = _packed(numbers, lag)
    return {"type": kind, "lag": lag, "zlib": b64encode(packed).decode()}


def decode_integers(
    value: object,
    shape: int | tuple[int, ...],
    what: str,
    *,
    low_limit: int | None = None,
    high_limit: int | None = None,
) -> IntArray:
    """Decode integers of a known shape from `encode_integers`, or raise `FileFormatError`, which starts with `what`."""
    if not isinstance(value, Mapping) or set(value) != FIELDS:
        raise FileFormatError(f"{what} is {shown(value)}; expected an object with the fields type, lag and zlib")
    kind, lag, count = value["type"], value["lag"], prod(shape) if isinstance(shape, tuple) else shape
    if kind not in TYPES:
        raise FileFormatError(f"{what} has the type {shown(kind)}; expected one of {', '.join(TYPES)}")
    if not is_int(lag) or not 0 <= lag <= MAX_LAG:
        raise FileFormatError(f"{what} has the lag {shown(lag)}; expected a whole number from 0 to {MAX_LAG}")
    stored = np.frombuffer(_unpacked(value["zlib"], count * np.dtype(kind).itemsize, what), _little(kind))
    numbers = stored.astype(np.int64)
    if lag:
        rows = np.zeros((-(-count // lag), lag), dtype=np.int64)
        rows.ravel()[:count] = numbers
        numbers = np.cumsum(rows, axis=0).ravel()[:count]
    low, high = (int(numbers.min()), int(numbers.max())) if count else (0, 0)
    if count and ((low_limit is not None and low < low_limit) or (high_limit is not None and high > high_limit)):
        outlier = low if low_limit is not None and low < low_limit else high
        limits = f"of at least {low_limit}" if high_limit is None else f"from {low_limit} to {high_limit}"
        raise FileFormatError(f"{what} has the number {outlier}; expected whole numbers {limits}")
    return numbers.reshape(shape)


def _little(kind: object) -> np.dtype[np.integer]:
    return np.dtype(str(kind)).newbyteorder("<")


def _packed(numbers: IntArray, lag: int) -> tuple[str, bytes]:
    """Return the type and the compressed bytes of numbers, less those `lag` places before them if it is not 0."""
    if lag:
        numbers = np.concatenate((numbers[:lag], numbers[lag:] - numbers[:-lag]))
    low, high = int(numbers.min(initial=0)), int(numbers.max(initial=0))
    kind = next(kind for kind in TYPES if np.iinfo(kind).min <= low and high <= np.iinfo(kind).max)
    return kind, zlib.compress(numbers.astype(_little(kind)).tobytes())


def _period(windows: list[IntArray]) -> int:
    """Return the lag at which the numbers most often grow by the same amount as one lag before; 1 for a few numbers."""
    if len(windows[0]) < WINDOW:
        return 1
    rows, first = np.stack(windows), 2 * MAX_LAG

    def bends(lag: int) -> int:
        before, twice = rows[:, first - lag : -lag], rows[:, first - 2 * lag : -2 * lag]
        return int(np.count_nonzero(rows[:, first:] - 2 * before + twice))

    return min(range(1, MAX_LAG + 1), key=bends)


def _unpacked(text: object, size: int, what: str) -> bytes:
    """Decompress exactly `size` bytes."""
    stream = zlib.decompressobj()
    try:
        content = stream.decompress(b64decode(text, validate=True), size + 1)  # type: ignore[arg-type]
    except (TypeError, ValueError, zlib.error) as error:
        raise FileFormatError(f"{what} cannot be decompressed ({error}); is the file cut short?") from None
    if len(content) != size or not stream.eof or stream.unused_data:
        size_text = f"{len(content)} bytes" if len(content) < size else f"more than {size} bytes or no end"
        raise FileFormatError(f"{what} has {size_text}; expected numbers of {size} bytes in total")
    return content


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
