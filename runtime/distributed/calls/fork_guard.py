"""Tells groups of this process from those that it has from the one that it is a fork of."""

from __future__ import annotations

import os
from typing import Any
from weakref import WeakKeyDictionary

from ....errors import UnsupportedError

__all__ = ["check_process"]

_processes: WeakKeyDictionary[Any, int] = WeakKeyDictionary()
"""In which process a group was first used."""


def check_process(group: Any) -> None:
    """Refuse a group that this process has from the one that it is a fork of.

    Nothing would read what comes from the other ranks, to which the two would be one.
    """
    if (process := _processes.setdefault(group, os.getpid())) != os.getpid():
        raise UnsupportedError(
            f"the group is that of process {process}, of which this one is a fork; expected one that was made here, by "
            "init_process_group or new_group"
        )
