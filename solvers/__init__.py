"""The algorithms: the door to HiGHS, and exact combinatorial routines for max flow, splitting and tree packing.

The names below solve linear programs; the routines with kernels are imported module by module, where they are needed.
"""

from .chance import seeded
from .exact_lp import ExactAnswer
from .highs import Session, solve
from .intervals import Interval
from .progress import Progress
from .solution import DualStatus, PrimalStatus, Solution, Status, Termination
from .solver_options import Algorithm, HighsOptions, limited_threads

__all__ = [
    "Algorithm",
    "DualStatus",
    "ExactAnswer",
    "HighsOptions",
    "Interval",
    "PrimalStatus",
    "Progress",
    "Session",
    "Solution",
    "Status",
    "Termination",
    "limited_threads",
    "seeded",
    "solve",
]
