"""Explicit mathematical models, one per module; they know no solver.

Each module's ``build`` states a model; between that and `collopt.solve` a user may add constraints or replace the
objective.
"""

from . import (
    all_to_all,
    allreduce,
    allreduce_cuts,
    bfb,
    convex,
    rate_rounding,
    rounding,
    sharing,
    survival,
    synthesis,
    throughput,
)
from .blocks import Blocks
from .pyomo_model import PyomoModel

__all__ = [
    "Blocks",
    "PyomoModel",
    "all_to_all",
    "allreduce",
    "allreduce_cuts",
    "bfb",
    "convex",
    "rate_rounding",
    "rounding",
    "sharing",
    "survival",
    "synthesis",
    "throughput",
]
