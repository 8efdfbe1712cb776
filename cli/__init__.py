"""The command line: what a person types, and nothing that a library user would miss."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["main"]

INTERRUPTED = 130
"""Exit status, as shells have it."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line, see `collopt.cli.app`; an interrupt while it is being imported ends it quietly too.

    Parameters
    ----------
    arguments : sequence of str, optional
        What follows the program's name; those of this process by default.

    Returns
    -------
    int
        The exit status.
    """
    try:
        from .app import main as run

        return run(arguments)
    except KeyboardInterrupt:
        return INTERRUPTED
