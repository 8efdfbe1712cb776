"""What a plan is: forests of trees with routes, their bounds, checks and costs."""

from __future__ import annotations

from .forest import Forest, TreeEdge

__all__ = ["Forest", "TreeEdge"]
