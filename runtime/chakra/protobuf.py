"""The wire format of Protocol Buffers, as far as execution traces need it.

A message is a row of fields: a key, which is the field's number and how its value is written, and the value.  See
https://protobuf.dev/programming-guides/encoding.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from ...errors import FileFormatError

__all__ = [
    "BYTES",
    "FIXED32",
    "FIXED64",
    "VARINT",
    "Field",
    "bytes_field",
    "fields",
    "packed_field",
    "signed",
    "varint",
    "varint_at",
    "varint_field",
]

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
FIXED_BYTES = {FIXED64: 8, FIXED32: 4}
MAX_BYTES_OF_VARINT = 10


class Field(NamedTuple):
    """One field: its number, how it is written, and the value as a number or as bytes."""

    number: int
    wire: int
    value: int | bytes


def varint(value: int) -> bytes:
    """Write a whole number of at least -2^63, seven bits per byte, the lowest first; negative ones as 64 bits.

    >>> varint(300).hex(), len(varint(-1))
    ('ac02', 10)
    """
    left, groups = value % 2**64, bytearray()
    while left >= 0x80:
        groups.append(left & 0x7F | 0x80)
        left >>= 7
    groups.append(left)
    return bytes(groups)


def varint_at(data: bytes, place: int) -> tuple[int, int]:
    """Read a number as `varint` writes it; return it and the place after it."""
    value = 0
    for count in range(MAX_BYTES_OF_VARINT):
        if place + count >= len(data):
            raise FileFormatError(f"a number at byte {place} is cut short")
        group = data[place + count]
        value |= (group & 0x7F) << 7 * count
        if group < 0x80:
            if value >= 2**64:
                break
            return value, place + count + 1
    raise FileFormatError(f"a number at byte {place} has more than 64 bits")


def signed(value: int) -> int:
    """Read 64 bits as a signed number.

    >>> signed(2**64 - 1), signed(5)
    (-1, 5)
    """
    return value - 2**64 if value >= 2**63 else value


def varint_field(number: int, value: int) -> bytes:
    """Write a field with a whole number."""
    return varint(number << 3 | VARINT) + varint(value)


def bytes_field(number: int, value: bytes) -> bytes:
    """Write a field with bytes, text or a message."""
    return varint(number << 3 | BYTES) + varint(len(value)) + value


def packed_field(number: int, values: Iterable[int]) -> bytes:
    """Write a field with any number of whole numbers, and nothing for none."""
    packed = b"".join(map(varint, values))
    return bytes_field(number, packed) if packed else b""


def fields(data: bytes) -> Iterator[Field]:
    """Yield the fields of a message.

    >>> [tuple(field) for field in fields(varint_field(1, 7) + bytes_field(2, b"ab"))]
    [(1, 0, 7), (2, 2, b'ab')]
    """
    place = 0
    while place < len(data):
        key, place = varint_at(data, place)
        number, wire = key >> 3, key & 7
        if wire == VARINT:
            value, place = varint_at(data, place)
            yield Field(number, wire, value)
            continue
        if wire == BYTES:
            length, place = varint_at(data, place)
        elif wire in FIXED_BYTES:
            length = FIXED_BYTES[wire]
        else:
            raise FileFormatError(f"a field before byte {place} is written in way {wire}; expected 0, 1, 2 or 5")
        if length > len(data) - place:
            raise FileFormatError(f"a field at byte {place} has {length} bytes, but {len(data) - place} are left")
        yield Field(number, wire, data[place : place + length])
        place += length
