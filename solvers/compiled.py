"""Whether the kernels were compiled on this machine before; the first time takes a while."""

from __future__ import annotations

from pathlib import Path

from .tree_lowering import _exchange

__all__ = ["compiled_before"]


def compiled_before() -> bool:
    """Look for the compiled code of the kernel that a plan needs last, where numba keeps it.

    Returns
    -------
    bool
        False also if this release's kernel was never needed before.
    """
    # Numba has no public name for this; without it, nothing is known and nothing is announced.
    folder = getattr(getattr(_exchange, "_cache", None), "cache_path", None)
    return folder is None or any(Path(folder).glob("tree_lowering._exchange-*.nbi"))
