"""Sizes as nccl-tests counts them.

The size is that of the whole result: what all shards have together, what one rank has in all for all-to-all (on average
for all-to-allv), and one rank's buffer elsewhere.  The *count* is that of one shard, or of what goes from one rank to
another, where there are such parts, and of the buffer elsewhere.
"""

from dataclasses import dataclass

from ....errors import UnsupportedError
from ...programs.layout import Layout

DATATYPES = {
    "int8": "int8", "uint8": "uint8", "int32": "int32", "int64": "int64", "half": "float16", "float": "float32",
    "double": "float64", "bfloat16": "bfloat16",
}  # fmt: skip
"""torch's names of element types by those of nccl-tests."""
MAX_SIZES = 10**4


@dataclass(frozen=True)
class Extent:
    """A size of a sweep."""

    size: int  # Bytes
    count: int  # Elements as nccl-tests counts them; the average for parts that are not equal
    elements: int  # Of the whole collective; of an all-to-all(v), those of all ranks together


def sweep(minbytes: int, maxbytes: int, stepfactor: int | None, stepbytes: int) -> tuple[int, ...]:
    """List the sizes of a sweep, in bytes."""
    if maxbytes < minbytes:
        raise UnsupportedError(f"the sweep ends at {maxbytes} bytes and begins at {minbytes}; expected it to end later")
    sizes: list[int] = []
    size = minbytes
    while size <= maxbytes:
        if len(sizes) == MAX_SIZES:
            raise UnsupportedError(
                f"the sweep from {minbytes} to {maxbytes} bytes has more than {MAX_SIZES} sizes; take larger steps"
            )
        sizes.append(size)
        size = size * stepfactor if stepfactor else size + stepbytes
    return tuple(sizes)


def extents(layout: Layout, sizes: tuple[int, ...], element_bytes: int) -> tuple[Extent, ...]:
    """Round sizes, in bytes, down to whole elements of all parts; leave out empty and repeated ones."""
    # Elements of the smallest whole, ranks among which its bytes are divided, and parts among which its elements are.
    unit, ranks, parts = 1, 1, 1
    if layout.in_pairs:
        unit, ranks, parts = sum(layout.parts), layout.num_ranks, layout.num_ranks**2
    elif layout.collective.is_sharded:
        unit = parts = layout.num_ranks
    times = dict.fromkeys(size * ranks // (unit * element_bytes) for size in sizes)
    times.pop(0, None)
    if not times:
        raise UnsupportedError(
            f"sizes up to {max(sizes)} bytes are less than one element of {element_bytes} bytes for each part; "
            f"go up to {-(-unit * element_bytes // ranks)} bytes at least"
        )
    return tuple(Extent(time * unit * element_bytes // ranks, time * unit // parts, time * unit) for time in times)
