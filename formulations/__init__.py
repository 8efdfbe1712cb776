"""Explicit mathematical models, one per module; they know no solver.

Each module's ``build`` states a model; between that and `collopt.solve` a user may add constraints or replace the
objective.
"""

from . import convex, sharing, survival, throughput
from .pyomo_model import PyomoModel

__all__ = ["PyomoModel", "convex", "sharing", "survival", "throughput"]
