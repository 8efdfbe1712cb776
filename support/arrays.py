"""Array types, and read-only views of arrays."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]
SmallArray = npt.NDArray[np.int32]
ShortArray = npt.NDArray[np.int16]
RandomArray = npt.NDArray[np.uint64]
FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]

Item = TypeVar("Item", bound=np.generic)


def read_only(array: npt.NDArray[Item]) -> npt.NDArray[Item]:
    """Return a read-only view of an array, or the array itself if it is read-only already."""
    if not array.flags.writeable:
        return array
    view = array.view()
    view.flags.writeable = False
    return view
