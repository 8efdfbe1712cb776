"""Exceptions that collopt raises on purpose.

Each derives from `ColloptError` and from the builtin exception that fits.  Its message is one sentence: what was wrong,
where, and how to fix it.  The command line prints that sentence and nothing else.
"""

__all__ = ["BoundError", "CapacityOverflowError", "CertificateError", "ColloptError", "FileFormatError"]
__all__ += ["MissingDependencyError"]
__all__ += ["NoAnswerError", "ProgramError", "SolverError", "TooLargeError", "TopologyError", "UnsupportedError"]


class ColloptError(Exception):
    """Base class of every error that collopt raises on purpose."""


class TopologyError(ColloptError, ValueError):
    """A topology, or a requested change of one, is not valid."""


class FileFormatError(ColloptError, ValueError):
    """A file is malformed, truncated, or of a version that this release does not read."""


class UnsupportedError(ColloptError, ValueError):
    """The request is well formed but outside what the chosen planner, runtime or format can do."""


class TooLargeError(UnsupportedError):
    """A plan exceeds the limits of a runtime: one with fewer trees, or fewer chunks, may fit."""


class BoundError(ColloptError, ValueError):
    """A lower bound on communication time cannot be stated for this topology and collective."""


class CertificateError(ColloptError, RuntimeError):
    """A plan or a bound does not prove what it claims."""


class ProgramError(ColloptError, RuntimeError):
    """A per-rank program is malformed, deadlocks, has a data race, or leaves wrong data."""


class SolverError(ColloptError, RuntimeError):
    """An algorithm reached a state that its theorem rules out: a bug in collopt, never in the input."""


class CapacityOverflowError(ColloptError, OverflowError):
    """Exact integers would leave the int64 range of the numerical kernels."""


class MissingDependencyError(ColloptError, ImportError):
    """An optional package that this call needs is not installed."""


class NoAnswerError(ColloptError, RuntimeError):
    """A solution has no such value: the model is infeasible, unbounded, or was not solved in time."""
