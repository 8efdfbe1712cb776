"""The page about plans, in a browser: it draws, fits, answers to keys and clicks, and asks nobody for anything."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from browser_pages import BROWSER, Browser, Page

pytest.importorskip("jinja2", reason="reports need jinja2")
pytest.importorskip("plotly", reason="reports need plotly")

import collopt
from collopt.report import write_report
from collopt.topologies import Topology, dgx_a100, kautz, ring, torus

pytestmark = [
    pytest.mark.skipif(BROWSER is None, reason="no Chromium is installed here"),
    pytest.mark.slow,
]

PLOTS = 5
HOSTILE = ("</script><script>window.hit=1</script>", '"><img src=x onerror=window.hit=1>', "<a href='//e.test'>x</a>")


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """One browser for all pages."""
    running = Browser(tmp_path_factory.mktemp("profile"))
    yield running
    running.close()


@pytest.fixture(scope="module")
def comparison(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page about three plans of one allreduce."""
    path = tmp_path_factory.mktemp("page") / "report.html"
    network = dgx_a100(boxes=2)
    planners = ("auto", "ring", "double-binary-tree")
    write_report({name: collopt.plan(network, "allreduce", planner=name) for name in planners}, path)
    return path


def check_quiet(page: Page, path: Path) -> None:
    """All plots are there, the console is empty, and nothing but the file was asked for."""
    assert page.run("document.documentElement.dataset.drawn") == str(PLOTS)
    assert page.run("document.querySelectorAll('.plot .main-svg').length") >= PLOTS
    assert page.console == []
    assert {address for address in page.requests if not address.startswith("data:")} == {path.resolve().as_uri()}


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [400, 1600])
def test_the_page_fits_narrow_and_wide_screens(browser: Browser, comparison: Path, width: int, scheme: str) -> None:
    """Nothing sticks out sideways, in either colors."""
    page = browser.open(comparison, width, scheme=scheme)
    check_quiet(page, comparison)
    assert page.run("innerWidth") == width
    assert page.run("document.documentElement.scrollWidth") == width
    dark = page.run("getComputedStyle(document.body).backgroundColor") == "rgb(15, 20, 27)"
    assert dark == (scheme == "dark")


@pytest.mark.parametrize(
    ("topology", "collective", "planner"),
    [
        (ring(4, bandwidth=25, latency=1), "reduce_scatter", "auto"),
        (torus(3, 3), "all_to_all", "auto"),
        (kautz(2, 1), "allreduce", "bfb"),
    ],
)
def test_every_kind_of_schedule_is_drawn(
    browser: Browser, tmp_path: Path, topology: Topology, collective: str, planner: str
) -> None:
    """Trees, flows and steps, with and without switches and latency."""
    path = tmp_path / "report.html"
    write_report(collopt.plan(topology, collective, planner=planner), path)
    check_quiet(browser.open(path), path)


def test_pages_may_share_a_script(browser: Browser, tmp_path: Path) -> None:
    """All plots are there; without the file the page says what it lacks."""
    path = tmp_path / "report.html"
    write_report(collopt.plan(dgx_a100(boxes=2), "allgather"), path, shared_script=True)
    (script,) = tmp_path.glob("plotly-*.min.js")
    page = browser.open(path)
    assert page.run("document.documentElement.dataset.drawn") == str(PLOTS)
    assert page.console == []
    asked = {address for address in page.requests if not address.startswith("data:")}
    assert asked == {each.resolve().as_uri() for each in (path, script)}
    script.unlink()
    lacking = browser.open(path)
    assert lacking.run("document.getElementById('no-plots').hidden") is False


def test_hostile_names_stay_names(browser: Browser, tmp_path: Path) -> None:
    """No script of theirs runs, no picture or link of theirs is made, and plots show them letter by letter."""
    links = list(zip(HOSTILE, HOSTILE[1:] + HOSTILE[:1], [10] * 3, strict=True))
    network = Topology.from_links(links, compute=HOSTILE, bidirectional=True, name=HOSTILE[0])
    path = tmp_path / "report.html"
    write_report(collopt.plan(network, "allgather"), path, title=HOSTILE[1])
    page = browser.open(path)
    check_quiet(page, path)
    assert page.run("typeof window.hit") == "undefined"
    assert page.run("document.querySelectorAll('main img, .plot a').length") == 0
    assert page.run("document.title") == HOSTILE[1]
    names = page.run("[...document.querySelectorAll('.links tbody td:first-child')].map((cell) => cell.textContent)")
    assert set(names) == set(HOSTILE)


def set_control(page: Page, name: str, assignment: str, event: str) -> None:
    """Do to a control what a person does, and wait for the plots."""
    control = f"document.getElementById('{name}')"
    page.run(f"{control}.{assignment}; {control}.dispatchEvent(new Event('{event}'))")
    page.wait_for(f"document.documentElement.dataset.drawn === '{PLOTS}'")


def test_one_tree_after_the_other(browser: Browser, comparison: Path) -> None:
    """By buttons, which are off at both ends, and by the slider."""
    page = browser.open(comparison)
    label = "document.getElementById('frame-label').textContent"
    assert page.run(label).startswith("1 of 244: root box0/gpu0")
    assert page.run("document.getElementById('frame-back').disabled")
    before = page.run("JSON.stringify(document.getElementById('plot-frame').data.map((trace) => trace.x))")
    page.run("document.getElementById('frame-next').click()")
    page.wait_for("document.documentElement.dataset.drawn === '5'")
    assert page.run(label).startswith("2 of 244")
    after = page.run("JSON.stringify(document.getElementById('plot-frame').data.map((trace) => trace.x))")
    assert after != before
    set_control(page, "frame", "value = 243", "input")
    assert page.run(label).startswith("244 of 244")
    assert page.run("document.getElementById('frame-next').disabled")
    assert page.console == []


def test_another_plan_and_another_size(browser: Browser, comparison: Path) -> None:
    """Words, tables and plots are those of what was chosen."""
    page = browser.open(comparison)
    end = "Math.max(...document.getElementById('plot-timeline').data.flatMap((t) => t.x.map((x, i) => x + t.base[i])))"
    first = page.run(end)
    set_control(page, "size", "selectedIndex = 0", "change")
    assert page.run(end) < first
    set_control(page, "plan-choice", "selectedIndex = 1", "change")
    verdicts = "[...document.querySelectorAll('.verdict')].filter((verdict) => verdict.offsetParent)"
    shown = page.run(f"{verdicts}.map((verdict) => verdict.textContent.trim())")
    assert len(shown) == 1
    assert shown[0].startswith("38.46 % below the bound")
    assert page.run("document.documentElement.scrollWidth <= innerWidth")
    assert page.console == []


def test_the_table_of_links_sorts_and_filters(browser: Browser, comparison: Path) -> None:
    """Numbers by value and largest first, names by their letters; the heading says how."""
    page = browser.open(comparison)
    rows = "[...document.querySelectorAll('.of-plan:not([hidden]) .links tbody tr')].filter((r) => !r.hidden)"
    heading = "document.querySelectorAll('.of-plan:not([hidden]) .links thead th')[{}]"
    for column, first in ((0, "ascending"), (2, "descending")):
        page.run(f"{heading.format(column)}.querySelector('button').click()")
        assert page.run(f"{heading.format(column)}.getAttribute('aria-sort')") == first
    loads = page.run(f"{rows}.map((r) => Number(r.cells[2].dataset.value))")
    assert loads == sorted(loads, reverse=True)
    assert page.run("document.querySelectorAll('.of-plan:not([hidden]) .links th[aria-sort]').length") == 1
    set_control(page, "filter", "value = 'BOX1/'", "input")
    count = page.run(f"{rows}.length")
    assert 0 < count < len(loads)
    assert (
        page.run("document.querySelector('.of-plan:not([hidden]) .shown-rows').textContent") == f"{count} of 96 links."
    )


def test_colors_can_be_chosen(browser: Browser, comparison: Path) -> None:
    """Against those of the system, and plots follow."""
    page = browser.open(comparison, scheme="light")
    color = "document.getElementById('plot-time').layout.font.color"
    light = page.run(color)
    for _ in range(2):
        page.run("document.getElementById('theme').click()")
        page.wait_for("document.documentElement.dataset.drawn === '5'")
    assert page.run("document.documentElement.dataset.theme") == "dark"
    assert page.run(color) != light
    assert page.run("getComputedStyle(document.body).backgroundColor") == "rgb(15, 20, 27)"
    page.run("document.getElementById('theme').click()")
    assert page.run("document.documentElement.dataset.theme === undefined")


def test_the_page_can_be_used_without_eyes_or_mouse(browser: Browser, comparison: Path) -> None:
    """It has a language, landmarks, headings in order, names for plots and controls, and tables with headings."""
    page = browser.open(comparison)
    assert page.run("document.documentElement.lang") == "en"
    for landmark in ("header", "nav[aria-label]", "main", "footer"):
        assert page.run(f"document.querySelectorAll('{landmark}').length") == 1, landmark
    levels = page.run("[...document.querySelectorAll('h1, h2, h3')].map((heading) => Number(heading.tagName[1]))")
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    assert page.run("[...document.querySelectorAll('.plot')].every((plot) => plot.getAttribute('aria-label'))")
    assert page.run("[...document.querySelectorAll('input, select')].every((e) => e.labels.length > 0)")
    assert page.run("[...document.querySelectorAll('table th')].every((heading) => heading.scope)")
    assert page.run("[...document.querySelectorAll('nav a')].every((link) => document.querySelector(link.hash))")
    ids = page.run("[...document.querySelectorAll('[id]')].map((element) => element.id)")
    own = [name for name in ids if not any(mark in name for mark in ("clip", "legend", "defs", "topdefs", "modebar"))]
    assert len(own) == len(set(own))
    browser.ask("Input.dispatchKeyEvent", page.session, type="keyDown", key="Tab", code="Tab", windowsVirtualKeyCode=9)
    assert page.run("document.activeElement.className") == "skip"
    assert page.run("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    assert page.run("document.activeElement.getBoundingClientRect().left") >= 0


@pytest.mark.parametrize("collective", ["allgather", "all_to_all"])
def test_long_names_fit_a_narrow_screen(browser: Browser, tmp_path: Path, collective: str) -> None:
    """Of nodes, boxes, networks and plans, two hundred letters each without a blank."""
    names = [f"{'b' * 200}{number // 2}/{'g' * 200}{number}" for number in range(4)]
    links = [(name, "sw", 10, 1) for name in names]
    network = Topology.from_links(links, compute=names, switches=["sw"], bidirectional=True, name="n" * 200)
    plan = collopt.plan(network, collective)
    path = tmp_path / "report.html"
    write_report({"x" * 200: plan, "y" * 200: plan}, path)
    page = browser.open(path, 400)
    check_quiet(page, path)
    assert page.run("document.documentElement.scrollWidth") == 400


@pytest.mark.parametrize("width", [400, 1600])
def test_legends_tell_steps_apart_and_keep_clear_of_buttons(browser: Browser, tmp_path: Path, width: int) -> None:
    """Steps of one color share an entry; buttons stand above the plots."""
    path = tmp_path / "report.html"
    write_report(collopt.plan(torus(4, 4), "all_to_all"), path, sizes=["64M"])
    page = browser.open(path, width)
    check_quiet(page, path)
    shown = page.run(
        "document.getElementById('plot-timeline').data.filter((t) => t.showlegend).map((t) => [t.name, t.marker.color])"
    )
    assert shown[0][0].endswith("1, 7, 13")
    assert len({color for _, color in shown}) == len(shown) == 6
    assert page.run(
        "[...document.querySelectorAll('.plot')].every((plot) => plot.getBoundingClientRect().top"
        " >= plot.querySelector('.modebar-btn').getBoundingClientRect().bottom)"
    )
    tiles = "[...document.querySelectorAll('.tiles dd')].find((tile) => tile.textContent === 'multicommodity')"
    assert page.run(f"{tiles}.getBoundingClientRect().height") < 30


def test_a_time_line_ends_with_the_last_byte(browser: Browser, tmp_path: Path) -> None:
    """Which comes a latency after the last time that a link is busy."""
    network = torus(3, 3, bandwidth=25, latency=10)
    plan = collopt.plan(network, "allgather", planner="bfb")
    path = tmp_path / "report.html"
    write_report(plan, path, sizes=["64K"])
    page = browser.open(path)
    check_quiet(page, path)
    time_line = "document.getElementById('plot-timeline').layout"
    assert page.run(f"{time_line}.shapes[0].x0") == pytest.approx(plan.estimate("64K"), abs=1e-3)
    assert page.run(f"{time_line}.xaxis.range[1]") > plan.estimate("64K")
    assert "after 20.58 µs" in page.run("document.querySelector('[data-note=timeline]').textContent")
