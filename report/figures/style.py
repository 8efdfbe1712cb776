"""Style, tables and files of all figures.

A figure is a `matplotlib.figure.Figure` that belongs to nobody else: pyplot and its global state are not used, so
figures can be made in threads and without a screen.  matplotlib is in the extra ``plot``.
"""

from __future__ import annotations

import base64
import io
import math
import os
from collections.abc import Mapping
from functools import cache
from html import escape
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import UnsupportedError
from ...support.files import write_whole
from ...support.packages import check_extra
from ...support.validation import as_path, shown

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.legend import Legend


COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""Told apart with any kind of color vision: Okabe and Ito, *Color Universal Design*, 2008."""
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*", "<", ">")  # So that color is not all that tells series apart
FORMATS = ("pdf", "png", "svg")
NAME = 48  # Letters of a name that a title or a legend has room for
COARSEST, FINEST = 10, 1200  # Dots per inch: more would only take memory


def empty_figure(width: float = 6.4, height: float = 4.2) -> Figure:
    """Make a figure of so many inches; raises `MissingDependencyError` without matplotlib."""
    check_extra("figures", "plot")
    return _shown_figure()(figsize=(width, height), layout="constrained")


def color(number: int) -> str:
    """Return the color of series `number`."""
    return COLORS[number % len(COLORS)]


def style(number: int) -> dict[str, Any]:
    """Return color and marker of series `number`, as matplotlib takes them."""
    return {"color": color(number), "marker": MARKERS[number % len(MARKERS)]}


def draw_series(axes: Axes, table: pd.DataFrame, series: str, across: str, up: str, **look: Any) -> None:
    """Draw a line for each value of a column, by a second one and a third one; it has no points where that is NaN."""
    for number, (name, rows) in enumerate(table.groupby(series, sort=False)):
        drawn = rows.dropna(subset=[up]).sort_values(across)
        if len(drawn):
            xs, ys = (drawn[column].astype(float) for column in (across, up))
            axes.plot(xs, ys, label=series_label(str(name)), **{"ms": 4, **style(number), **look})


def tint(strong: str, share: float) -> str:
    """Mix a color, given as ``#rrggbb``, with white, of which it keeps `share`.

    >>> tint("#0072B2", 1), tint("#0072B2", 0.2)
    ('#0072b2', '#cce3f0')
    """
    parts = (int(strong[start : start + 2], 16) for start in (1, 3, 5))
    return "#" + "".join(f"{round(255 - share * (255 - part)):02x}" for part in parts)


def finish(axes: Axes, title: str, across: str, up: str) -> None:
    """Label the axes."""
    axes.set_title(title, parse_math=False)
    axes.set_xlabel(across)
    axes.set_ylabel(up)
    axes.grid(visible=True, alpha=0.3, lw=0.5)
    axes.set_axisbelow(True)
    if axes.get_legend_handles_labels()[0]:
        legend(axes, fontsize="small")


def legend(owner: Axes | Figure, **options: Any) -> Legend:
    """Add a legend without mathtext, as names may contain its characters."""
    drawn = owner.legend(**options)
    for text in (*drawn.get_texts(), drawn.get_title()):
        text.set_parse_math(False)
    return drawn


def shortened(name: str, limit: int = NAME) -> str:
    """Shorten a long name in the middle, for figures.

    >>> shortened("rack-17/shelf-3/server-25/gpu7", 15), shortened("gpu7", 15)
    ('rack-17…25/gpu7', 'gpu7')
    """
    return name if len(name) <= limit else f"{name[: limit // 2]}…{name[limit // 2 + 1 - limit :]}"


def series_label(name: str) -> str:
    """Name a series: with an underscore first, matplotlib would leave it out of the legend."""
    return f" {shortened(name)}" if name.startswith("_") else shortened(name)


def save_figure(figure: Figure, path: str | os.PathLike[str], *, dots_per_inch: int = 150) -> None:
    """Write a figure atomically and reproducibly.

    Raises `UnsupportedError` if the path ends in something else, or the figure or the number of dots is none.

    Parameters
    ----------
    figure : Figure
        Left as it is.
    path : str or path
        Ends in ``.png``, ``.svg`` or ``.pdf``; a file there before is replaced.
    dots_per_inch : int, optional
        Of a PNG, 10 to 1200.
    """
    suffix = as_path(path).suffix.lower().removeprefix(".")
    if suffix not in FORMATS:
        raise UnsupportedError(
            f"the path {shown(os.fspath(path))} does not end in .png, .svg or .pdf; name one of them"
        )
    check_extra("figures", "plot")
    from matplotlib.figure import Figure

    if not isinstance(figure, Figure):
        raise UnsupportedError(f"the figure is {shown(figure)}; expected one of matplotlib's")
    dots = as_float(dots_per_inch)
    if dots is None or not COARSEST <= dots <= FINEST:
        raise UnsupportedError(
            f"dots_per_inch is {shown(dots_per_inch)}; expected a number from {COARSEST} to {FINEST}"
        )
    write_whole(path, _drawn(figure, suffix, dots))


def _drawn(figure: Figure, form: str, dots: float = 100) -> bytes:
    """Return the file of a figure."""
    from matplotlib import rc_context

    drawn = io.BytesIO()
    # Without a date, and with identifiers that are not random, the same figure is the same file.
    metadata: dict[str, Any] = {"Date": None} if form == "svg" else {"CreationDate": None} if form == "pdf" else {}
    # Letters as text can be searched, and take a fraction of the space of their outlines.
    with rc_context({"svg.hashsalt": "collopt", "svg.fonttype": "none"}):
        figure.savefig(drawn, format=form, dpi=dots, metadata=metadata)
    return drawn.getvalue()


def image_of(figure: Figure, description: str) -> str:
    """Return a figure as an HTML image, which says what it shows to those who do not see it."""
    data = base64.b64encode(_drawn(figure, "svg")).decode()
    return f'<img alt="{escape(description)}" style="max-width: 100%" src="data:image/svg+xml;base64,{data}">'


@cache
def _shown_figure() -> type[Figure]:
    """Define figures that notebooks show, as matplotlib is imported late."""
    from matplotlib.figure import Figure

    class ShownFigure(Figure):
        def _repr_html_(self) -> str:
            return image_of(self, "; ".join(axes.get_title() for axes in self.axes))

    return ShownFigure


EXPECTED = {"text": "text", "number": "a finite number", "positive": "a finite number above 0"}
"""What columns hold."""


def check_table(table: object, columns: Mapping[str, str]) -> pd.DataFrame:
    """Check that the columns of a table hold what `EXPECTED` lists; `UnsupportedError` if they do not."""
    import pandas as pd

    named = ", ".join(columns)
    if not isinstance(table, pd.DataFrame):
        raise UnsupportedError(f"the table is {shown(table)}; expected a DataFrame with the columns {named}")
    names = table.columns.tolist()
    for column in columns:
        if names.count(column) != 1:
            raise UnsupportedError(
                f"the table has {names.count(column) or 'no'} columns {column!r}; expected one of each of {named}"
            )
    if not len(table):
        raise UnsupportedError("the table has no rows; expected rows to draw")
    for column, content in columns.items():
        for row, value in enumerate(table[column].tolist()):
            number = as_float(value)
            fits = number is not None and (content == "number" or number > 0)
            if not (isinstance(value, str) if content == "text" else fits):
                raise UnsupportedError(
                    f"row {row} of column {column!r} is {shown(value)}; expected {EXPECTED[content]}"
                )
    return table


def as_float(value: object) -> float | None:
    """Read a finite number, or return None."""
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, Real):
        return None
    try:
        number = float(value)
    except (OverflowError, ValueError):
        return None
    return number if math.isfinite(number) else None
