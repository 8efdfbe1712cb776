"""Checks on the sizes that people ask topology builders for."""

from __future__ import annotations

from ..errors import TopologyError
from .validation import as_whole

__all__ = ["MAX_LINKS", "as_size", "check_links"]

MAX_LINKS = 2**20
"""Directed links of a generated topology; beyond it, building alone takes minutes and gigabytes."""


def as_size(value: object, what: str, *, least: int = 1, most: int = 2**16) -> int:
    """Read a whole number between `least` and `most`.

    Parameters
    ----------
    value : int
        Numpy integers are fine; booleans, floats and text are not.
    what : str
        Names the thing in the error message, such as ``"boxes"``.
    least, most : int
        Both included.

    Returns
    -------
    int

    Raises
    ------
    TopologyError
        If the value is not a whole number or outside the limits.

    Examples
    --------
    >>> as_size(4, "boxes")
    4
    """
    return as_whole(value, what, least=least, most=most, error=TopologyError)


def check_links(links: int, what: str) -> None:
    """Refuse, before anything is built, a topology of more than `MAX_LINKS` directed links."""
    if links > MAX_LINKS:
        raise TopologyError(f"{what} would have {links} links; expected at most {MAX_LINKS}, ask for a smaller one")
