"""Explicit linear and integer programs, one per module, independent of any solver.

``build`` of a module states a model; before `collopt.solve` a user may add constraints or replace the objective.
Arguments that are not of the documented form raise `UnsupportedError`.

Links of a model's `topology` carry its data; its `variables` are handles to index when extending it.
``docs/formulations`` has a page with examples and the mathematics for each.
"""

from . import (
    all_to_all,
    allreduce,
    allreduce_cuts,
    allreduce_rounding,
    bfb,
    bfb_rounding,
    cvxpy_constraints,
    flow_over_time,
    hitting_set,
    multicast,
    piece_shares,
    sharing,
    steiner,
    synthesis,
    throughput,
)
from .blocks import Blocks
from .pyomo_model import PyomoModel

__all__ = ["Blocks", "PyomoModel", "cvxpy_constraints"]
__all__ += ["all_to_all", "bfb", "bfb_rounding", "flow_over_time", "piece_shares", "synthesis", "throughput"]
__all__ += ["allreduce", "allreduce_cuts", "allreduce_rounding", "hitting_set", "multicast", "sharing", "steiner"]
