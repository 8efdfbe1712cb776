"""Items of the paper."""

from __future__ import annotations

from .rows import Item

ITEMS: tuple[Item, ...] = ()
