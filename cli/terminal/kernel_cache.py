"""Whether kernels were compiled before, so that whoever waits for the first one can be told why it takes a while."""

from __future__ import annotations

from pathlib import Path

from ...solvers.trees.height_reduction import _exchange


def cache_folder() -> Path | None:
    """Return where numba keeps compiled kernels, or None if it does not say."""
    # Numba has no public name for this.
    folder = getattr(getattr(_exchange, "_cache", None), "cache_path", None)
    return None if folder is None else Path(folder)


def compiled_before() -> bool:
    """Look for the compiled code of the kernel that a plan needs last, where numba keeps it."""
    folder = cache_folder()
    # Where nothing is known, nothing is announced.
    return folder is None or any(folder.glob("height_reduction._exchange-*.nbi"))
