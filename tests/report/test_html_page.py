"""The page about plans, as a file: what it states, what it refuses, and that it holds nothing but itself."""

from __future__ import annotations

import base64
import gzip
import html
import json
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("jinja2", reason="reports need jinja2")

import collopt
from collopt.errors import MissingDependencyError, UnsupportedError
from collopt.planners import Plan
from collopt.report import tables as predicted_times
from collopt.report import write_report
from collopt.report.pages import outlook, scene
from collopt.report.pages import page as entries
from collopt.report.pages.page import report_page
from collopt.topologies import RuntimeCosts, Topology, dgx_a100, ring, torus
from nccl_logs import A100, devices, header, info, table, text

HOSTILE = ("</script><script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "{{ 7 * 7 }}", "<b>&lt;$x^2$</b>")


@pytest.fixture(scope="module")
def made() -> Plan:
    """An allgather among two boxes: a gap of 0, a cut of unequal links."""
    return collopt.plan(dgx_a100(boxes=2), "allgather")


def text_of(plans: Any, **options: Any) -> str:
    """The page without its style and script."""
    page = report_page(plans, **options).decode()
    return re.sub(r"<(script|style)>.*?</\1>", "", page, count=2, flags=re.DOTALL)


def data_of(page: str) -> Any:
    """What the page's script is given."""
    found = re.search(r'<script type="application/gzip" id="report-data">(.*?)</script>', page)
    assert found
    return json.loads(gzip.decompress(base64.b64decode(found[1])))


def test_the_page_states_the_plans_exact_numbers(made: Plan) -> None:
    """Bandwidth, bound and the sum of the cut are fractions."""
    page = text_of(made)
    assert f"exactly {made.algbw}" in page
    crossing = made.bound.witness.crossing(made.topology, made.collective)
    assert f"time ≥ {crossing.amount} / {crossing.bandwidth} = 0.0462 ns ({made.bound.inverse_rate}) per byte" in page
    assert f"= 346.67 GB/s ({made.bound.algbw})" in page
    assert "<strong>Optimal.</strong>" in page
    assert made.topology.digest in page


def test_a_plan_below_its_bound_is_not_called_optimal(made: Plan) -> None:
    """The page has the gap, and says that the optimum may lie in between."""
    page = text_of(collopt.plan(made.topology, "allgather", planner="ring"))
    assert "38.46 % below the bound" in page
    assert "The optimum lies between" in page
    assert "Optimal" not in page


def test_nothing_is_loaded_from_elsewhere(made: Plan) -> None:
    """No address leads elsewhere, and the policy allows only the page's own script."""
    page = text_of(made)
    assert set(re.findall(r'(?:src|href|action|data)="([^"#]*)', page)) == {"", "data:,"}
    assert "url(" not in page
    assert "@import" not in page
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)
    assert policy
    assert policy[1].startswith("default-src &#39;none&#39;; script-src &#39;sha256-")
    assert "unsafe-eval" not in policy[1]
    assert policy[1].count("unsafe-inline") == 1  # styles


def test_names_cannot_become_markup_or_script() -> None:
    """Names of nodes, networks, planners and options are escaped, in JSON too."""
    links = list(zip(HOSTILE, HOSTILE[1:] + HOSTILE[:1], [10] * 4, strict=True))
    network = Topology.from_links(links, compute=HOSTILE, bidirectional=True, name="<script>alert(2)</script>")
    plan = replace(collopt.plan(network, "allgather"), planner="<img src=x>", options={"<i>": "</i>"})
    page = text_of(plan, title="</title><script>alert(3)</script>")
    assert page.count("<script") == page.count('<script type="application/gzip"') == 2
    assert "<img" not in page
    assert "<b>" not in page
    assert "<i>" not in page
    assert "49" not in re.findall(r"<td>(.*?)</td>", page)
    assert data_of(page)["plans"][0]["nodes"]["name"] == list(HOSTILE)


def test_the_table_has_every_link_until_there_are_too_many(made: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page says how many links are left out."""
    assert text_of(made).count('<td class="number" data-value=') == 4 * len(made.topology.links)
    monkeypatch.setattr(entries, "MAX_LINKS", 10)
    monkeypatch.setattr(scene, "MAX_DRAWN", 12)
    monkeypatch.setattr(scene, "MAX_PARTS", 5)
    page = text_of(made)
    left = len(made.topology.links)
    assert f"{left - 10} more links, with no higher utilization, are not listed" in page
    assert page.count('<td class="number" data-value=') == 40
    shown = data_of(page)["plans"][0]
    assert len(shown["links"]["tail"]) == 12
    assert f"{left - 12} are left out" in shown["leftOut"]
    assert max(shown["runs"][0]["link"]) < 12
    assert max(shown["runs"][0]["part"]) == 4
    assert len(shown["parts"]["label"]) == 5
    assert (
        f"the first 5 of {made.trees.num_trees} trees; {made.trees.num_trees - 5} are left out"
        in shown["parts"]["leftOut"]
    )


def test_large_plans_do_without_what_takes_too_long(made: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page says that runs and predicted times are left out."""
    monkeypatch.setattr(scene, "MAX_PIECES", 10)
    monkeypatch.setattr(predicted_times, "MAX_WORK", 10)
    data = data_of(text_of(made))
    assert data["plans"][0]["runs"][0]["note"].startswith("No timeline: the plan moves ")
    assert "start" not in data["plans"][0]["runs"][0]
    assert data["curves"]["leftOut"].startswith("No times of forestcoll")
    assert data["curves"]["plans"][0]["time"] == []


def test_predicted_times_are_those_of_the_plan(made: Plan) -> None:
    """Predictions equal estimates of trees, flows and steps at every size."""
    bfb = collopt.plan(collopt.topologies.kautz(2, 1, latency=1), "allgather", planner="bfb")
    costs = {"alpha": 5, "launch": 10, "reduction": 2, "efficiency": {"gpu-gpu": "3/4"}}
    networks = [replace(torus(3, 3, latency=2), costs=RuntimeCosts(send=send, **costs)) for send in (0, 1)]
    flows = [collopt.plan(torus(3, 3, latency=2), "all_to_all")]
    flows += [collopt.plan(network, "allreduce", planner="ring") for network in networks]
    for plan in (made, bfb, *flows):
        wanted = [plan.estimate(size) for size in outlook.CURVE_SIZES]
        assert predicted_times.predicted_times(plan, outlook.CURVE_SIZES) == wanted


def test_known_planners_are_beside_a_plan(made: Plan) -> None:
    """Baselines share the scale of the bound, and repeat no plan of the page."""
    rows = r'<tr class="(bound|plan|baseline)"><th scope="row">(.*?)</th>.*?<span class="value">([0-9.]*)'
    assert re.findall(rows, text_of(made))[:3] == [
        ("bound", "bound", "346.67"),
        ("plan", "forestcoll", "346.67"),
        ("baseline", "NCCL (ring)", "213.33"),
    ]
    several = outlook.baselines({"a": collopt.plan(dgx_a100(boxes=2), "allreduce", planner="nccl")})
    assert list(several) == ["ring"]
    assert outlook.baselines({"a": collopt.plan(torus(3, 3), "all_to_all")}) == {}


def test_other_bandwidths_move_the_bound(made: Plan) -> None:
    """Each class has the bounds of changed bandwidths."""
    cards = {link[:2]: link.bandwidth / 2 for link in made.topology.links if "ib" in link[:2]}
    bars = {bar.label: bar for bar in outlook.class_chart(made).bars}
    assert list(bars)[:2] == ["as it is", "gpu-nvswitch × 1/2"]
    changed = collopt.bound(made.topology.with_bandwidths(cards), "allgather")
    assert bars["nic-ib × 1/2"].value == float(changed.algbw)
    assert (bars["nic-ib × 1/2"].kind, bars["nic-ib × 1/2"].note) == ("less", "−42.31 %")
    assert {bar.kind for bar in bars.values()} == {"bound", "less", "same", "more"}
    loads = collopt.report.link_table(made).assign(share=scene.shares_of(made.bound))
    rows = {row["name"]: row for row in outlook.class_rows(made, loads)}
    assert sum(row["share"] for row in rows.values()) == pytest.approx(1)
    assert rows["nic-ib"]["use"] == pytest.approx(1)


def test_failures_are_shown_by_option(made: Plan) -> None:
    """Each kind of failure has its cost with the option, and none without."""
    assert "What if something fails" not in text_of(made)
    page = text_of(made, failures=True)
    assert "box0/nic0 (16 alike)" in page
    assert "7.69 % lost" in page


def test_a_missing_package_is_named(made: Plan, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The error has the pip command."""
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(MissingDependencyError, match=re.escape("pip install 'collopt[report]'")):
        write_report(made, tmp_path / "page.html")
    assert list(tmp_path.iterdir()) == []


def test_a_log_is_shown_as_it_is_diagnosed(made: Plan, tmp_path: Path) -> None:
    """The section has the verdict, the figures of each size and the explanations; names from the log are escaped."""
    log = tmp_path / f"{HOSTILE[3].replace('/', '')}.txt"
    log.write_text(text(header("all_gather"), devices(2, A100), info(), table(90, 16, "all_gather")))
    diagnosis = collopt.diagnose(log, topology=made.topology)
    assert diagnosis.verdict == "low"
    assert diagnosis.explanations
    section = text_of(made, diagnosis=diagnosis).partition('id="measured"')[2].partition("</section>")[0]
    run = diagnosis.runs[0]
    rows = [re.findall(r">([^<]*)</td>", row) for row in section.split("<tbody>")[1].split("<tr>")[1:]]
    assert [html.unescape(cell) for row in rows for cell in row] == [cell for size in run.sizes for cell in size.cells]
    assert rows[-1][2] == f"{100 * run.sizes[-1].measured / float(made.bound.busbw):.2f} %"
    shown = html.unescape(re.sub(r"<[^>]*>", "", section))
    for words in (run.reason, run.limit, run.compared, *map(str, diagnosis.explanations), *diagnosis.notes):
        assert words in shown
    assert log.name in shown
    assert HOSTILE[3][:3] not in section
    assert "Measured" not in text_of(made)


def test_a_log_of_something_else_than_the_plan_is_refused(made: Plan, tmp_path: Path) -> None:
    """Another network, collective, or distribution of shards is named, and no page is written."""
    log, page = tmp_path / "log.txt", tmp_path / "page.html"
    log.write_text(text(header("all_gather"), devices(2, A100), table(90, 16, "all_gather")))
    diagnosis = collopt.diagnose(log, topology=made.topology)
    others = {
        "compared with dgx-a100-2boxes, and the plan is on ring-4": collopt.plan(ring(4), "allgather"),
        "measures allgather of equal shards, and the plan is for all_to_all;": collopt.plan(
            made.topology, "all_to_all"
        ),
        "the plan is for allgather of others": collopt.plan(made.topology, "allgather", weights=[2] + [1] * 15),
    }
    for words, plan in others.items():
        with pytest.raises(UnsupportedError, match=words):
            write_report(plan, page, diagnosis=diagnosis)
    assert not page.exists()
