"""Integer arrays as text: base64 of zlib-compressed little-endian numbers, or of their differences at one lag.

Numbers of links and nodes in generated networks grow by the same amounts from box to box, so their differences at the
right lag repeat, and a million of them take a few kilobytes.
"""

import zlib
from base64 import b64decode, b64encode
from collections.abc import Mapping
from math import prod

import numpy as np
import numpy.typing as npt

from ..errors import FileFormatError
from .arrays import IntArray
from .validation import is_int, shown

TYPES = ("uint8", "int8", "uint16", "int16", "uint32", "int32", "int64")  # the first that fits is used
FIELDS = {"type", "lag", "zlib"}
WINDOW = 2**12  # numbers at the start, in the middle and at the end that choose the lag
MAX_LAG = 2**9


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
    """Decode integers of a known shape from `encode_integers`, or raise `FileFormatError`, which starts with `what`.

    No more is decompressed than numbers of this shape need.
    """
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
