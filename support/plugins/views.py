"""Views of objects: figures, and what notebooks show.  A layer above registers how they are made."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...errors import MissingDependencyError
from .registered import call_registered

if TYPE_CHECKING:
    from matplotlib.figure import Figure

VIEWS = "collopt.views"
"""The entry point group of ``frame``, ``html`` and ``plot``."""


class Viewed:
    """An object that notebooks show as a figure."""

    def plot(self, kind: str | None = None, **options: Any) -> Figure:
        """Draw a figure, which notebooks show, and `collopt.report.save_figure` writes to a file.

        Raises `UnsupportedError` for an unknown kind or option; `MissingDependencyError` without matplotlib.

        Parameters
        ----------
        kind : str, optional
            ``"topology"``; of bounds and plans also ``"cut"``, the default there, and ``"logical"``; of plans also
            ``"utilization"``, ``"trees"``, ``"steps"`` and ``"curves"``; of calibrations ``"residuals"``, the first.
        **options
            Of the function for that kind in `collopt.report`, such as ``size="64M"`` for ``"steps"``.
        """
        figure: Figure = call_registered(VIEWS, "view", "plot", (self, kind), {"options": options})
        return figure

    def _repr_html_(self) -> str | None:
        """What notebooks show; None, for the text instead, without matplotlib."""
        try:
            page: str = call_registered(VIEWS, "view", "html", (self,), {})
        except MissingDependencyError:
            return None
        return page
