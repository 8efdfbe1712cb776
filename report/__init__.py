"""What people look at: figures of costs, of sweeps over sizes, and of a simulated training iteration."""

from __future__ import annotations

from .figures import (
    best_runtime_figure,
    pareto_figure,
    relative_bandwidth_figure,
    runtime_figure,
    save_figure,
    timeline_figure,
)

__all__ = [
    "best_runtime_figure",
    "pareto_figure",
    "relative_bandwidth_figure",
    "runtime_figure",
    "save_figure",
    "timeline_figure",
]
