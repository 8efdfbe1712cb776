"""How a schedule is to be cut into steps, as all lowerings need to know."""

from __future__ import annotations

from typing import NamedTuple

from ..programs.layout import Layout

__all__ = ["LoweringOptions"]


class LoweringOptions(NamedTuple):
    """The options of `collopt.runtime.lowering.lower.lower`, which says what they mean."""

    max_steps: int
    max_count: int
    channels: int
    instances: int

    def borders(self, layout: Layout) -> frozenset[int]:
        """Chunks that no step may reach from below: where a shard begins, if instances are to divide it."""
        return frozenset(layout.blocks) if self.instances > 1 else frozenset()
