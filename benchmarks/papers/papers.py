"""The items of each paper, in the order of the page."""

from __future__ import annotations

from . import direct_connect, fast, forestcoll, pipeline
from .rows import Item

ITEMS: dict[str, tuple[Item, ...]] = {
    "forestcoll": forestcoll.ITEMS,
    "direct-connect": direct_connect.ITEMS,
    "fast": fast.ITEMS,
    "pipeline": pipeline.ITEMS,
}
PAPERS_BY_NAME = {paper: {item.name: item for item in items} for paper, items in ITEMS.items()}
