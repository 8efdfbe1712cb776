"""Figure of a calibration: residuals of a fit by message size."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...runtime import Calibration
from .plan import size_axis
from .style import empty_figure, finish, series_label, shortened, style

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def residual_figure(found: Calibration) -> Figure:
    """Draw how far the model is above each measured time, in percent, against the size: one series per measurement."""
    figure = empty_figure(7.0, 4.4)
    axes = figure.subplots()
    for number, run in enumerate(found.runs):
        percent = [100 * each for each in run.residuals]
        axes.plot(run.sizes, percent, ls="", ms=4, label=series_label(run.model.partition(",")[0]), **style(number))
    axes.axhline(0, color="0.4", lw=1)
    size_axis(axes, [size for run in found.runs for size in run.sizes])
    finish(axes, f"Residuals on {shortened(found.topology.name)}", "size in bytes", "model above measured time in %")
    return figure
