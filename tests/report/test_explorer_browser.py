"""The explorer in a browser, by mouse and by keyboard: what people do to a network shows in bound, plan and picture."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlencode

import pytest

pytest.importorskip("tornado", reason="the explorer needs tornado")

from browser_pages import BROWSER, Browser, Page
from explorer_pages import FIRST, exploring

import collopt
from collopt.report.pages.answers import Scenario
from collopt.report.pages.server import Explorer
from collopt.support.formatting import rate_text
from collopt.topologies import dgx_a100, ring, write_topology

pytestmark = [
    pytest.mark.skipif(BROWSER is None, reason="no Chromium is installed here"),
    pytest.mark.slow,
]

KEYS = {"Tab": 9, "Enter": 13, " ": 32, "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40, "End": 35}


@pytest.fixture(scope="module")
def explorer() -> Iterator[Explorer]:
    """One server for all pages."""
    with exploring() as running:
        yield running


def visit(browser: Browser, explorer: Explorer, query: str = FIRST.to_query(), width: int = 1280, **more: str) -> Page:
    """Open a state and wait until it is shown."""
    page = browser.visit(f"{explorer.address.partition('#')[0]}#{query}", width, **more)
    page.wait_for("Boolean(document.documentElement?.dataset.shown)")
    wait_until_shown(page)
    return page


def wait_until_shown(page: Page) -> None:
    """Wait until the state of the address is."""
    page.wait_for("document.documentElement.dataset.shown === query(parse(location.hash.slice(1))) && running === null")


def figure(page: Page, row: str, column: int = 1) -> str:
    """Read a number of the table of results."""
    rows = "[...document.querySelectorAll('#figures tbody tr')]"
    return str(
        page.run(f"{rows}.find((row) => row.cells[0].textContent.startsWith('{row}')).cells[{column}].textContent")
    )


def click(page: Page, selector: str) -> None:
    """Click where an element is."""
    page.run(f"document.querySelector({selector!r}).scrollIntoView({{ block: 'center' }})")
    middle = "{ const at = element.getBoundingClientRect(); return [at.x + at.width / 2, at.y + at.height / 2]; }"
    press(page, *page.run(f"((element) => {middle})(document.querySelector({selector!r}))"))


def press(page: Page, x: float, y: float, to: float | None = None) -> None:
    """Press the mouse at a point, drag it along, and release it."""
    where = {"x": x, "y": y, "button": "left", "clickCount": 1}
    page.browser.ask("Input.dispatchMouseEvent", page.session, type="mouseMoved", x=x, y=y)
    page.browser.ask("Input.dispatchMouseEvent", page.session, type="mousePressed", **where)
    if to is not None:
        for step in range(1, 9):
            moved = where | {"x": x + (to - x) * step / 8}
            page.browser.ask("Input.dispatchMouseEvent", page.session, type="mouseMoved", buttons=1, **moved)
        where["x"] = to
    page.browser.ask("Input.dispatchMouseEvent", page.session, type="mouseReleased", **where)


def key(page: Page, name: str, times: int = 1, modifiers: int = 0) -> None:
    """Press a key; modifiers are 2 for Ctrl and 8 for Shift."""
    about = {"key": name, "windowsVirtualKeyCode": KEYS.get(name, ord(name[0].upper())), "modifiers": modifiers}
    for _ in range(times):
        text = {"text": "\r"} if name == "Enter" else {}
        page.browser.ask("Input.dispatchKeyEvent", page.session, type="keyDown", **about, **text)
        page.browser.ask("Input.dispatchKeyEvent", page.session, type="keyUp", **about)


def tab_to(page: Page, selector: str) -> None:
    """Reach an element by the tab key alone."""
    for _ in range(60):
        if page.run(f"document.activeElement.matches({selector!r})"):
            return
        key(page, "Tab")
    raise AssertionError(f"{selector} cannot be reached by keyboard")


def bound_text(scenario: Scenario) -> str:
    """The bound as the page writes it, from the library."""
    return rate_text(collopt.bound(scenario.changed(dgx_a100(boxes=2)), scenario.collective).algbw)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [400, 760, 1600])
def test_the_page_fits_and_is_quiet(
    browser: Browser, explorer: Explorer, width: int, scheme: str, tmp_path: Path
) -> None:
    """The page fits in both colors, logs nothing and asks no other machine."""
    changed = urlencode([("without", "box0/nic0"), ("against", FIRST.to_query())])
    page = visit(browser, explorer, f"{FIRST.to_query()}&{changed}", width, scheme=scheme)
    page.run("pick('box0/gpu0--box0/nic0')")
    page.picture(tmp_path / "page.png")
    assert page.run("document.documentElement.scrollWidth") == width
    # The picture, also one that is higher than the window, covers neither what is above it nor what is below.
    edges = [f"document.querySelector('{part}').getBoundingClientRect()" for part in ("header", "#stage", "aside")]
    assert page.run(f"{edges[0]}.bottom <= {edges[1]}.top")
    if width < 960:
        assert page.run(f"{edges[1]}.bottom <= {edges[2]}.top")
    assert page.console == []
    assert all(address.startswith((explorer.address.partition("#")[0], "data:")) for address in page.requests)
    dark = page.run("getComputedStyle(document.body).backgroundColor") == "rgb(15, 20, 27)"
    assert dark == (scheme == "dark")


def test_a_link_is_broken_and_restored_by_mouse(browser: Browser, explorer: Explorer) -> None:
    """A link is broken by a click and restored by Undo and in the list of changes."""
    page = visit(browser, explorer)
    intact, broken = bound_text(FIRST), bound_text(Scenario(FIRST.network, without=("box0/gpu3--box0/nic3",)))
    assert figure(page, "Bound") == intact
    middle = page.run(
        "(() => { const { nodes, links } = paneB.shown, at = links.tail.findIndex((tail, at) => nodes.name[tail] === "
        "'box0/gpu3' && nodes.name[links.head[at]] === 'box0/nic3'); const line = document.querySelector('#pane-b "
        "[data-link=\"' + at + '\"] .line'), point = line.getPointAtLength(line.getTotalLength() / 2), "
        "on = line.ownerSVGElement.getBoundingClientRect(); return [on.x + point.x, on.y + point.y]; })()"
    )
    press(page, *middle)
    assert page.run("document.getElementById('picked-title').textContent") == "box0/gpu3 ↔ box0/nic3"
    click(page, "#break")
    wait_until_shown(page)
    assert figure(page, "Bound") == figure(page, "Plan") == broken != intact
    assert page.run("document.querySelectorAll('#pane-b .link.gone').length") == 2
    assert "--without box0/gpu3--box0/nic3" in page.run("document.getElementById('command').textContent")
    for button, text in (("#undo", intact), ("#redo", broken), ("#change-list li > button:last-child", intact)):
        click(page, button)
        wait_until_shown(page)
        page.wait_for(f"document.querySelector('#figures td').textContent === {text!r}")
    assert page.run("document.querySelectorAll('.link.gone').length") == 0
    assert page.console == []


def test_everything_is_done_by_keyboard(browser: Browser, explorer: Explorer) -> None:
    """A NIC is found, derated, broken and restored by keys."""
    page = visit(browser, explorer)
    tab_to(page, "#collective")
    key(page, "ArrowDown", 2)
    wait_until_shown(page)
    assert page.run("state.collective") == "allreduce"
    tab_to(page, "#pane-b svg")
    key(page, "ArrowRight", 2)
    key(page, "ArrowDown")
    key(page, "Enter")
    target = page.run("picked.target")
    assert target.startswith("box0/gpu1--")
    tab_to(page, "#factor")
    key(page, "ArrowLeft", 4)
    wait_until_shown(page)
    assert page.run("[...state.scale]") == [[target, "4/5"]]
    tab_to(page, "#break")
    key(page, "Enter")
    wait_until_shown(page)
    changed = Scenario(FIRST.network, "allreduce", without=(target,))
    assert figure(page, "Bound") == bound_text(changed)
    key(page, "z", modifiers=2)
    page.wait_for(f"state.scale.get({target!r}) === '4/5'")
    key(page, "z", modifiers=10)
    page.wait_for(f"state.without.includes({target!r})")
    assert page.console == []


def test_a_file_is_dropped_in_and_saved_again(browser: Browser, explorer: Explorer, tmp_path: Path) -> None:
    """A good file is shown, and a broken one is a message."""
    path = tmp_path / "net.json"
    write_topology(ring(5, bandwidth=20), path)
    page = visit(browser, explorer)
    drop = (
        "((text) => {{ const data = new DataTransfer(); data.items.add(new File([text], 'mine.json')); "
        "dispatchEvent(new DragEvent('drop', {{ dataTransfer: data, cancelable: true }})); }})({!r})"
    )
    page.run(drop.format(path.read_text()))
    page.wait_for("document.querySelector('#pane-b figcaption').textContent.includes('5 ranks')")
    wait_until_shown(page)
    saved = page.run("fetch('file/topology.json?' + query(state)).then((reply) => reply.text())")
    assert saved == path.read_text()
    page.run(drop.format("{"))
    page.wait_for("!document.getElementById('error').hidden")
    assert page.run("document.getElementById('error').textContent").startswith("mine.json is not valid JSON")


def test_a_long_plan_shows_progress_and_can_be_stopped(browser: Browser, explorer: Explorer) -> None:
    """The page stays usable while it waits."""
    slow = "network=generalized-kautz+--set+n=200+--set+degree=3&collective=all_to_all"
    page = browser.visit(f"{explorer.address.partition('#')[0]}#{slow}")
    page.wait_for("document.getElementById('working')?.hidden === false && shownResult !== null")
    click(page, "#stop")
    page.wait_for("running === null")
    assert page.run("document.getElementById('verdict').textContent").startswith("Stopped")
    page.run("request('collective', 'allgather')")
    wait_until_shown(page)
    assert page.run("document.getElementById('verdict').textContent").startswith("Optimal")


def test_views_are_no_steps_and_errors_leave_no_numbers(browser: Browser, explorer: Explorer) -> None:
    """Undo keeps the comparison, ``?`` lists the keys, NICs are called so, and an error clears what was shown."""
    page = visit(browser, explorer)
    key(page, "?")
    assert page.run("document.getElementById('keys').open")
    click(page, "#keys-close")
    assert not page.run("document.getElementById('keys').open")
    broken = "box0/gpu3--box0/nic3"
    page.run(f"pick({broken!r}); document.getElementById('break').click()")
    wait_until_shown(page)
    click(page, "#compare")
    wait_until_shown(page)
    page.wait_for("state.against !== null")
    click(page, "#undo")
    page.wait_for("state.without.length === 0")
    assert page.run("state.against") == page.run("query({ ...state, without: [" + repr(broken) + "] })")
    nic = "paneB.shown.nodes.name.indexOf('box0/nic0')"
    assert page.run(f"paneB.view.describe('switch', {nic})")[1] == "NIC"
    page.run("request('size', 'much')")
    page.wait_for("!document.getElementById('error').hidden && running === null")
    assert figure(page, "Plan", 2) == "–"
    assert page.console == []
