"""The algorithms: the door to HiGHS, and exact combinatorial routines for max flow, splitting and tree packing.

The names below solve linear programs; the routines with kernels are imported module by module, where they are needed.
"""

from ..support.seed import seeded
from .highs.callbacks import Progress
from .highs.options import Algorithm, HighsOptions, limited_threads
from .highs.session import Session, solve
from .highs.solution import DualStatus, PrimalStatus, Solution, Status, Termination
from .lp.certified_interval import Interval
from .lp.exact_optimum import ExactAnswer

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
