"""Arrays that nobody writes to, for schedules that stay what was proved of them."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
import numpy.typing as npt

__all__ = ["read_only"]

Item = TypeVar("Item", bound=np.generic)


def read_only(array: npt.NDArray[Item]) -> npt.NDArray[Item]:
    """Return a view that cannot be written to, or the array itself if it cannot be written to already.

    >>> loads = np.arange(3)
    >>> view = read_only(loads)
    >>> loads.flags.writeable, view.flags.writeable, read_only(view) is view
    (True, False, True)
    """
    if not array.flags.writeable:
        return array
    view = array.view()
    view.flags.writeable = False
    return view
