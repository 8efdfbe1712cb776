"""How many examples hypothesis draws: ``from sample_sizes import examples``."""

from __future__ import annotations

from hypothesis import settings

__all__ = ["examples"]


def examples(count: int) -> int:
    """`count` examples under the default profile, as CI runs it; as much fewer as the profile in use draws fewer."""
    return max(1, count * settings().max_examples // 100)
