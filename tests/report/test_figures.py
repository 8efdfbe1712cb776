"""The figures: what is drawn where, from which columns, and how files come about."""

from __future__ import annotations

import sys
from pathlib import Path

import pandas as pd
import pytest

pytest.importorskip("matplotlib", reason="figures need matplotlib")

from evaluation_figures import runtime_figure

from collopt import report
from collopt.errors import MissingDependencyError

RUNTIMES = pd.DataFrame(
    {
        "nodes": [64, 16, 16, 64],
        "topology": ["ring", "ring", "ours", "ours"],
        "allreduce_us": [1300.0, 400.0, 100.0, 150.0],
        "all_to_all_us": [700.0, None, 90.0, 95.0],
    }
)


def test_runtime_figure_has_a_line_per_topology_in_order_of_size() -> None:
    """Both axes are logarithmic, and lines leave missing times out."""
    left, right = runtime_figure(RUNTIMES).axes
    assert [line.get_label() for line in left.lines] == ["ring", "ours"]
    assert left.lines[0].get_xdata().tolist() == [16, 64]
    assert left.lines[0].get_ydata().tolist() == [400, 1300]
    assert right.lines[0].get_xdata().tolist() == [64]
    assert left.lines[1].get_color() == right.lines[1].get_color()
    for axes, what in ((left, "allreduce"), (right, "all-to-all")):
        assert axes.get_title() == f"Time of {what}"
        assert (axes.get_xlabel(), axes.get_ylabel(), axes.get_yscale()) == ("nodes N", "time in µs", "log")
        assert axes.get_legend() is not None


def test_pareto_figure_joins_what_nothing_beats() -> None:
    """Dominated and tied topologies are marked but not joined, and all have names."""
    table = pd.DataFrame(
        {
            "name": ["C(8, {2, 3})", "tie", "beaten", "K^2"],
            "steps": [2, 2, 3, 4],
            "bandwidth_factor": [1.2, 1.2, 1.3, 0.9],
        }
    )
    (axes,) = report.pareto_figure(table).axes
    (front,) = axes.lines
    assert (front.get_xdata().tolist(), front.get_ydata().tolist()) == ([2, 4], [1.2, 0.9])
    assert axes.collections[0].get_offsets().tolist() == [[2, 1.2], [3, 1.3]]
    # Where names would overlap they are one text, the lowest point's last.
    assert [text.get_text() for text in axes.texts] == ["tie\nC(8, {2, 3})", "beaten", "K^2"]


FRONT = pd.DataFrame({"name": ["a", "b"], "steps": [1, 2], "bandwidth_factor": [1.5, 1.0]})


@pytest.mark.parametrize(("suffix", "start"), [("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF")])
def test_files_are_whole_and_the_same_each_time(suffix: str, start: bytes, tmp_path: Path) -> None:
    """No temporary file is left behind, and a picture does not depend on when it was drawn."""
    report.save_figure(report.pareto_figure(FRONT), tmp_path / f"one.{suffix}")
    written = (tmp_path / f"one.{suffix}").read_bytes()
    assert written.startswith(start)
    assert [path.name for path in tmp_path.iterdir()] == [f"one.{suffix}"]
    report.save_figure(report.pareto_figure(FRONT), tmp_path / f"two.{suffix}")
    assert (tmp_path / f"two.{suffix}").read_bytes() == written


def test_no_global_state_is_touched() -> None:
    """pyplot, which keeps every figure that it makes, is never imported for a figure."""
    before = set(sys.modules)
    report.pareto_figure(pd.DataFrame({"name": ["a"], "steps": [1], "bandwidth_factor": [1]}))
    assert "matplotlib.pyplot" not in set(sys.modules) - before


def test_missing_matplotlib_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error has the pip command."""
    monkeypatch.delitem(sys.modules, "matplotlib.figure", raising=False)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingDependencyError, match=r"pip install 'collopt\[plot\]'"):
        report.pareto_figure(FRONT)


@pytest.mark.parametrize("name", ["$x$", "$\\frac{1}{", "_a_", "%s{0}", "n" * 200])
@pytest.mark.parametrize("suffix", ["svg", "pdf"])
def test_names_are_no_formulas(tmp_path: Path, name: str, suffix: str) -> None:
    """Names in legends are plain text, and long ones lose their middle."""
    table = pd.DataFrame({"nodes": [4, 8], "allreduce_us": [1.0, 2.0], "all_to_all_us": [1.0, 2.0], "topology": name})
    figure = runtime_figure(table)
    report.save_figure(figure, tmp_path / f"figure.{suffix}")
    (text,) = figure.axes[0].get_legend().get_texts()
    assert text.get_text().strip() == (name if len(name) < 50 else "n" * 24 + "…" + "n" * 23)
