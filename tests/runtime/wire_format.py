"""Writes fields in the wire format of Protocol Buffers by hand, for files that no library would write.

See https://protobuf.dev/programming-guides/encoding.
"""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["bytes_field", "packed_field", "varint", "varint_field"]

VARINT, BYTES = 0, 2


def varint(value: int) -> bytes:
    """Write a whole number of at least -2^63, seven bits per byte, the lowest first; negative ones as 64 bits."""
    left, groups = value % 2**64, bytearray()
    while left >= 0x80:
        groups.append(left & 0x7F | 0x80)
        left >>= 7
    groups.append(left)
    return bytes(groups)


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
