"""Solvers: the interface to HiGHS, exact linear programs, and combinatorial algorithms on integer arrays.

The names below solve linear programs; modules with numba kernels are imported where they are needed.  Unless a
docstring says otherwise, `tails`, `heads`, `capacities` are int64 (links,), and `supplies`, `weights` int64 (ranks,).
"""

from ..support.seed import seeded
from .lp.exact_optimum import ExactAnswer, Interval
from .lp.options import Algorithm, HighsOptions, Progress, limited_threads
from .lp.session import Session, solve
from .lp.solution import DualStatus, PrimalStatus, Solution, Status, Termination

__all__ = ["Session", "Solution", "solve"]
__all__ += ["Algorithm", "HighsOptions", "Progress", "limited_threads", "seeded"]
__all__ += ["DualStatus", "PrimalStatus", "Status", "Termination"]
__all__ += ["ExactAnswer", "Interval"]
