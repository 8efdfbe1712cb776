"""What notebooks show, and figures by method."""

import base64
import re
from html import escape
from unittest.mock import patch

import pytest
from matplotlib.figure import Figure

from collopt import bound, find_topologies, plan, solve
from collopt.errors import MissingDependencyError
from collopt.formulations import throughput
from collopt.report import curve_table, link_table, step_table, tree_table
from collopt.topologies import Topology, dgx_a100, ring

NETWORK = dgx_a100(boxes=2)


def picture(page: str | None) -> str:
    """Return the SVG in a page; there must be one image, with a description."""
    assert page is not None
    found = re.findall(r'<img alt="([^"]+)"[^>]* src="data:image/svg\+xml;base64,([^"]+)">', page)
    assert len(found) == 1
    return base64.b64decode(found[0][1]).decode()


def test_objects_show_a_text_and_a_small_figure() -> None:
    """Notebooks show text and an offline figure below 200 kB."""
    candidate = find_topologies(8, 2, all_to_all=False)[0]
    for shown, title in (
        (NETWORK, "16 ranks"),
        (bound(NETWORK, "allgather"), "at most 346.67"),
        (plan(NETWORK, "allgather"), "at most 346.67"),
        (candidate, "8 ranks"),
    ):
        page = shown._repr_html_()
        drawn = picture(page)
        assert escape(repr(shown)[1:12]) in str(page)
        assert title in drawn
        assert not re.search(r'href="(?!#)|<script|url\((?!#)', drawn)
        assert len(str(page)) < 200_000


def test_large_networks_show_text() -> None:
    """Networks of many nodes are text alone."""
    network = dgx_a100(boxes=64)
    assert network._repr_html_() == f"<div><p><code>{escape(repr(network)[1:-1])}</code></p></div>"


def test_without_matplotlib_notebooks_show_the_text() -> None:
    """Without matplotlib notebooks take `repr`, and `plot` says what to install."""
    with patch("collopt.report.figures.style.check_extra", side_effect=MissingDependencyError("no figures")):
        assert ring(4)._repr_html_() is None
        with pytest.raises(MissingDependencyError, match="no figures"):
            ring(4).plot()


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (None, {}),
        ("topology", {}),
        ("cut", {}),
        ("logical", {}),
        ("utilization", {}),
        ("trees", {"root": 1}),
        ("steps", {"size": "1M"}),
        ("curves", {"sizes": ["1M", "1G"]}),
    ],
)
def test_plans_have_every_figure(kind: str | None, options: dict[str, object]) -> None:
    """Every kind of figure is drawn for a plan."""
    figure = plan(ring(4, bandwidth=25, latency=1), "allgather").plot(kind, **options)
    assert isinstance(figure, Figure)
    assert picture(figure._repr_html_()).count("<svg") == 1  # type: ignore[attr-defined]


def test_plans_are_tables_and_graphs() -> None:
    """Tables are those of `collopt.report`, and edges of the graph have their values."""
    made = plan(ring(4, bandwidth=25, latency=1), "allgather")
    assert made.to_frame().equals(link_table(made))
    assert made.to_frame("trees", root=1).equals(tree_table(made, 1))
    assert made.to_frame("steps", size="1M").equals(step_table(made, "1M"))
    assert made.to_frame("curves", sizes=["1M"]).equals(curve_table([made], ["1M"]))
    graph = made.to_networkx()
    assert Topology.from_networkx(graph).digest == made.topology.digest
    for row in made.to_frame().to_dict("records"):
        edge = graph.edges[row["tail"], row["head"]]
        assert (edge["load"], edge["utilization"], edge["in_cut"]) == (row["load"], row["utilization"], row["in_cut"])


def test_solutions_show_their_blocks() -> None:
    """Values of variables and duals of constraints are a table."""
    answer = solve(throughput.build(ring(4, bandwidth=25)))
    table = answer.to_frame().set_index("name")
    assert table.loc["rate", ["kind", "entries", "nonzero"]].tolist() == ["variable", 1, 1]
    assert table.loc["rate", "largest"] == answer.objective
    duals = answer.duals["link_bandwidth"].values()
    assert table.loc["link_bandwidth", "largest"] == max(duals)
    assert table.loc["link_bandwidth", "nonzero"] == sum(map(bool, duals))
    assert "objective 16.6667" in answer._repr_html_()
    model = throughput.build(ring(4))
    model.constrain("fast", model.variables.rate >= 5)
    impossible = solve(model)
    assert impossible.to_frame()["nonzero"].isna().all()
    assert "infeasible" in impossible._repr_html_()
