"""The exceptions that collopt raises on purpose.

Every one of them derives from `ColloptError` and from the builtin that fits, and carries one sentence: what was
wrong, where, and how to mend it.  The command line prints that sentence and nothing else.
"""

from __future__ import annotations

__all__ = [
    "BoundError",
    "CapacityOverflowError",
    "CertificateError",
    "ColloptError",
    "FileFormatError",
    "MissingDependencyError",
    "NoAnswerError",
    "ProgramError",
    "SolverError",
    "TooLargeError",
    "TopologyError",
    "UnsupportedError",
]


class ColloptError(Exception):
    """Base class of every error that collopt raises on purpose."""


class TopologyError(ColloptError, ValueError):
    """A topology, or a change asked of one, makes no sense."""


class FileFormatError(ColloptError, ValueError):
    """A file is not what it claims to be, is cut short, or is of a version this release does not read."""


class UnsupportedError(ColloptError, ValueError):
    """The request is well formed but outside what the chosen planner, runtime or format can do."""


class TooLargeError(UnsupportedError):
    """A plan has more pieces than a runtime takes: one with fewer trees, or fewer chunks, may fit."""


class BoundError(ColloptError, ValueError):
    """A lower bound on communication time cannot be stated for this topology and collective."""


class CertificateError(ColloptError, RuntimeError):
    """A plan or a bound does not prove what it claims."""


class ProgramError(ColloptError, RuntimeError):
    """A per-rank program is malformed, deadlocks, races, or leaves wrong data behind."""


class SolverError(ColloptError, RuntimeError):
    """An algorithm reached a state that its theorem rules out: a defect in collopt, never in the input."""


class CapacityOverflowError(ColloptError, OverflowError):
    """Exact integers would leave the int64 range of the numerical kernels."""


class MissingDependencyError(ColloptError, ImportError):
    """An optional package that this call needs is not installed."""


class NoAnswerError(ColloptError, RuntimeError):
    """A number was asked of a solution that has none: the model is infeasible, unbounded, or was not solved in time."""
