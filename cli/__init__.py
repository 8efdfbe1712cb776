"""Command-line interface."""

import sys
from collections.abc import Sequence

from .terminal.output import INTERRUPTED, UNUSABLE

__all__ = ["main"]

PACKAGES = {"flint": "python-flint", "yaml": "pyyaml"}
"""Where a package that collopt needs is not called like its module."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line, see `collopt.cli.app`; an interrupt while it is being imported ends it quietly too."""
    try:
        from .app import main as run

        return run(arguments)
    except KeyboardInterrupt:
        return INTERRUPTED
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing in ("", "collopt"):
            raise
        package = PACKAGES.get(missing, missing)
        words = f"collopt needs {package}, which is not installed; install it with: pip install {package}"
        if sys.stderr is not None:
            sys.stderr.write(f"collopt: error: {words}\n")
        return UNUSABLE
