"""The page about plans, in a browser: it draws, fits, answers to keys and clicks, and asks nobody for anything."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from browser_pages import BROWSER, Browser, Page

pytest.importorskip("jinja2", reason="reports need jinja2")

import collopt
from collopt.report import write_report
from collopt.topologies import Topology, dgx_a100, kautz, ring, torus

pytestmark = [
    pytest.mark.skipif(BROWSER is None, reason="no Chromium is installed here"),
    pytest.mark.slow,
]

HOSTILE = ("</script><script>window.hit=1</script>", '"><img src=x onerror=window.hit=1>', "<a href='//e.test'>x</a>")


@pytest.fixture(scope="module")
def comparison(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page about three plans of one allreduce."""
    path = tmp_path_factory.mktemp("page") / "report.html"
    network = dgx_a100(boxes=2)
    planners = ("auto", "ring", "double-binary-tree")
    write_report({name: collopt.plan(network, "allreduce", planner=name) for name in planners}, path)
    return path


def check_quiet(page: Page, path: Path) -> None:
    """Everything is drawn, the console is empty, and nothing but the file was asked for."""
    assert page.run("document.documentElement.dataset.drawn") == "1"
    for drawn in ("#network-view .line", "#timeline-view .busy", "#chart-time .curve", "#chart-algbw .curve"):
        assert page.run(f"document.querySelectorAll('{drawn}').length"), drawn
    assert page.console == []
    assert {address for address in page.requests if not address.startswith("data:")} == {path.resolve().as_uri()}


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [400, 1600])
def test_the_page_fits_narrow_and_wide_screens(browser: Browser, comparison: Path, width: int, scheme: str) -> None:
    """The page fits in both colors."""
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
    """Trees, flows and steps are drawn, with and without switches and latency."""
    path = tmp_path / "report.html"
    write_report(collopt.plan(topology, collective, planner=planner), path)
    check_quiet(browser.open(path), path)


def test_hostile_names_stay_names(browser: Browser, tmp_path: Path) -> None:
    """Names make no script, picture or link."""
    links = list(zip(HOSTILE, HOSTILE[1:] + HOSTILE[:1], [10] * 3, strict=True))
    network = Topology.from_links(links, compute=HOSTILE, bidirectional=True, name=HOSTILE[0])
    path = tmp_path / "report.html"
    write_report(collopt.plan(network, "allgather"), path, title=HOSTILE[1])
    page = browser.open(path)
    check_quiet(page, path)
    assert page.run("typeof window.hit") == "undefined"
    assert page.run("document.querySelectorAll('main img, svg a').length") == 0
    assert page.run("document.title") == HOSTILE[1]
    names = page.run("[...document.querySelectorAll('.links tbody td:first-child')].map((cell) => cell.textContent)")
    assert set(names) == set(HOSTILE)


def set_control(page: Page, name: str, assignment: str, event: str) -> None:
    """Do to a control what a person does."""
    control = f"document.getElementById('{name}')"
    page.run(f"{control}.{assignment}; {control}.dispatchEvent(new Event('{event}'))")


LABEL = "document.getElementById('frame-label').textContent"
WAYS = "[...document.querySelectorAll('.layer-part .way')].map((way) => way.getAttribute('d')).join()"


def test_one_tree_after_the_other(browser: Browser, comparison: Path) -> None:
    """Buttons and slider select a tree, whose links the timeline shows."""
    page = browser.open(comparison)
    assert page.run(LABEL) == "all 244 trees at once"
    assert page.run("document.getElementById('frame-back').disabled")
    page.run("document.getElementById('frame-next').click()")
    assert page.run(LABEL).startswith("Tree 1 of 244: root box0/gpu0")
    before = page.run(WAYS)
    page.run("document.getElementById('frame-next').click()")
    assert page.run(LABEL).startswith("Tree 2 of 244")
    assert page.run(WAYS) != before
    set_control(page, "frame", "value = 244", "input")
    assert page.run(LABEL).startswith("Tree 244 of 244")
    assert page.run("document.getElementById('frame-next').disabled")
    assert page.console == []


def test_the_schedule_plays_and_can_be_stopped(browser: Browser, tmp_path: Path) -> None:
    """Data moves with time, and every link carries all of its data by the end."""
    path = tmp_path / "report.html"
    write_report(collopt.plan(ring(4, bandwidth=25, latency=1), "allgather"), path)
    page = browser.open(path)
    play, clock = "document.querySelector('.play')", "document.querySelector('.clock').textContent"
    spots = (
        "[...document.querySelectorAll('.move:not([display=none])')].map((move) => move.firstChild.getAttribute('cx'))"
    )
    assert page.run(f"{spots}.length") == 0
    page.run(f"{play}.click()")
    page.wait_for(f"{clock}[0] !== '0' && {spots}.length > 3")
    assert "Pause" in page.run(f"{play}.textContent")
    before = page.run(f"{spots}.join()")
    page.wait_for(f"{spots}.join() !== '{before}'")
    page.run(f"{play}.click()")
    assert "Play" in page.run(f"{play}.textContent")
    seek = "document.querySelector('.seek')"
    page.run("document.getElementById('frame-next').click()")
    page.run(f"{seek}.value = 400; {seek}.dispatchEvent(new Event('input'))")
    passed = "[...document.querySelectorAll('.passed')].map((way) => parseFloat(way.getAttribute('stroke-dasharray')))"
    halfway = page.run(passed)
    assert len(halfway) == 3
    assert all(0 < share < 1 for share in halfway)
    page.run(f"{seek}.value = 1000; {seek}.dispatchEvent(new Event('input'))")
    assert page.run(passed) == [1, 1, 1]
    assert "Replay" in page.run(f"{play}.textContent")
    assert page.run("document.querySelector('#timeline-view .head').getAttribute('x1')") == page.run(
        "document.querySelector('#timeline-view .end').getAttribute('x1')"
    )
    assert page.console == []


def test_the_keyboard_plays_seeks_and_goes_through_the_network(browser: Browser, comparison: Path) -> None:
    """The focused node is read out, and Enter keeps it below the network."""
    page = browser.open(comparison)
    page.run("document.querySelector('.seek').focus()")
    clock = "document.querySelector('.clock').textContent"
    page.press("PageUp")
    assert not page.run(clock).startswith("0 ")
    page.press(" ")
    page.wait_for("document.querySelector('.play').textContent.includes('Pause')")
    page.press(" ")
    page.run("document.querySelector('#network-view svg').focus()")
    spoken = "document.querySelector('.scene-spoken').textContent"
    page.press("ArrowRight")
    assert page.run(spoken).startswith("box0/gpu0; rank 0; in box0")
    page.press("ArrowDown")
    assert page.run(spoken).startswith("box0/gpu0 → box0/nvswitch; 300 GB/s")
    page.press("Enter")
    assert page.run("document.getElementById('inspector').textContent").startswith("box0/gpu0 → box0/nvswitch: 300")
    page.press("Escape")
    assert page.run("document.querySelectorAll('.marked').length") == 0


def test_the_page_can_be_used_without_eyes_or_mouse(browser: Browser, comparison: Path) -> None:
    """The page has a language, landmarks, ordered headings, and names for plots, controls and tables."""
    page = browser.open(comparison)
    assert page.run("document.documentElement.lang") == "en"
    for landmark in ("header", "nav[aria-label]", "main", "footer"):
        assert page.run(f"document.querySelectorAll('{landmark}').length") == 1, landmark
    levels = page.run("[...document.querySelectorAll('h1, h2, h3')].map((heading) => Number(heading.tagName[1]))")
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    drawn = page.run("[...document.querySelectorAll('main svg')].map((e) => [e.getAttribute('role'), e.ariaLabel])")
    assert len(drawn) == 4
    assert all(role in ("img", "application") and label for role, label in drawn)
    assert page.run("[...document.querySelectorAll('input, select')].every((e) => e.labels.length > 0 || e.ariaLabel)")
    assert page.run("[...document.querySelectorAll('table th')].every((heading) => heading.scope)")
    assert page.run("[...document.querySelectorAll('nav a')].every((link) => document.querySelector(link.hash))")
    ids = page.run("[...document.querySelectorAll('[id]')].map((element) => element.id)")
    assert len(ids) == len(set(ids))
    page.press("Tab")
    assert page.run("document.activeElement.className") == "skip"
    assert page.run("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    assert page.run("document.activeElement.getBoundingClientRect().left") >= 0
