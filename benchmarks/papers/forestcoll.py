"""ForestColl: tables and figures as theory and simulation."""

from __future__ import annotations

from collections.abc import Iterator

from collopt import plan
from collopt.topologies import mi250

from .rows import Item, Row

OPTIMAL_TREES = 83


def fixed_counts(small: bool) -> Iterator[Row]:
    """Table 1: algbw of allgather on two MI250 boxes by the number of trees per root."""
    topology = mi250(boxes=2)
    for count, printed in {1: "320", 2: "341", 3: "343", 4: "341", 5: "348", OPTIMAL_TREES: "354"}.items():
        if count == OPTIMAL_TREES:
            found = plan(topology, "allgather")
        elif not small or count <= 2:
            found = plan(topology, "allgather", trees_per_root=count)
        else:
            continue
        yield Row(f"k = {count}", f"table 1, column {count}", printed, found.algbw, "GB/s")


ITEMS = (Item("table-1", "algbw by the number of trees per root, 2 x MI250", "Section 5.5", fixed_counts),)
