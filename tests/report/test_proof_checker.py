"""The checker of proofs in the report page: it agrees with `Plan.verify`, and the page shows what it finds."""

from __future__ import annotations

import base64
import copy
import gzip
import hashlib
import json
import random
import re
import shutil
import subprocess
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from browser_pages import BROWSER, Browser, Page

pytest.importorskip("jinja2", reason="reports need jinja2")

import collopt
from collopt.errors import ColloptError
from collopt.planners.plans.files import plan_from_json
from collopt.report import write_report
from collopt.report.pages import page as pages
from collopt.schedules import Bound
from collopt.schedules.bounds.item_cuts import ItemCut, ItemCuts
from collopt.schedules.bounds.witness import LinkValue
from collopt.topologies import complete, dgx_h100, hypercube, kautz, ring

NODE = shutil.which("node")
CHECKER = Path(pages.__file__).parent / "templates" / "proof.js"
RUN = """
const { check } = require(process.argv[1]), { readFileSync } = require("fs");
(async () => {
  const files = JSON.parse(readFileSync(0, "utf8"));
  console.log(JSON.stringify(await Promise.all(files.map((file) => check(new Uint8Array(readFileSync(file)))))));
})();
"""
with_node = pytest.mark.skipif(NODE is None, reason="no Node.js is installed here")
with_browser = pytest.mark.skipif(BROWSER is None, reason="no Chromium is installed here")


def verdicts(files: list[Path]) -> list[dict[str, Any]]:
    """Let the checker read files under Node.js."""
    assert NODE is not None
    names = json.dumps(list(map(str, files)))
    done = subprocess.run([NODE, "-e", RUN, str(CHECKER)], input=names, text=True, capture_output=True, check=True)
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


def small_plans() -> list[collopt.Plan]:
    """Plans of every kind of schedule, of bounds by cuts, parts, lengths and cuts of items."""
    square = complete(4, bandwidth=12)
    items = collopt.plan(complete(2, bandwidth=12), collopt.Demands([("weights", 1, ["gpu0"], ["gpu1"])]))
    length, item = LinkValue("gpu0", "gpu1", Fraction(1)), ItemCut(Fraction(1), frozenset(["gpu1"]))
    by_items = Bound.from_witness(items.topology, items.collective, ItemCuts((length,), ((item,),)))
    return [
        collopt.plan(ring(4, bandwidth="25/3"), "allgather"),
        collopt.plan(square, "reduce_scatter", weights=[1, 2, 3, 4]),
        collopt.plan(dgx_h100(), "allreduce"),
        collopt.plan(ring(3, bandwidth=25), "broadcast", root=1),
        collopt.plan(hypercube(2, bandwidth=25), "allgather", planner="bfb"),
        collopt.plan(hypercube(2, bandwidth=25), "allreduce", planner="bfb"),
        collopt.plan(square, "allreduce", planner="recursive-doubling"),
        collopt.plan(square, "allgather", planner="symmetric"),
        collopt.plan(kautz(2, 1), "all_to_all"),
        replace(items, bound=by_items),
        collopt.plan(square, "all_to_allv", traffic=[[0, 3, 0, 1], [1, 0, 2, 0], [0, 0, 0, 5], [4, 1, 1, 0]]),
    ]


def leaves(value: Any) -> list[tuple[Any, Any]]:
    """Holder and key of all whole numbers and texts."""
    pairs = list(value.items()) if isinstance(value, dict) else list(enumerate(value))
    below = [leaf for _, entry in pairs if isinstance(entry, (dict, list)) for leaf in leaves(entry)]
    return below + [(value, key) for key, entry in pairs if isinstance(entry, (int, str))]


def forged(document: dict[str, Any], chance: random.Random) -> dict[str, Any]:
    """Change one number, or one name, of a part of a plan."""
    copied = copy.deepcopy(document)
    part = chance.choice(["schedule", "schedule", "bound", "link_loads", "topology"])
    holder, key = chance.choice(leaves(copied[part]))
    names = document["topology"]["compute"]
    if isinstance(holder[key], int):
        holder[key] += chance.choice([-1, 1, 2])
    else:
        holder[key] = chance.choice(names) if holder[key] in names else f"{chance.randint(1, 9)}/7"
    return copied


def holds(document: dict[str, Any]) -> bool:
    """Whether the plan is read and verified."""
    try:
        plan_from_json(json.loads(json.dumps(document)), "plan").verify()
    except ColloptError:
        return False
    return True


@with_node
def test_the_checker_agrees_with_verify_on_plans_and_forgeries(tmp_path: Path) -> None:
    """Right plans are proved, and of those with one change the same ones are refuted."""
    chance, files, expected = random.Random(0), list[Path](), list[bool]()
    for number, plan in enumerate(small_plans()):
        documents = [plan.to_json()]
        documents += [forged(documents[0], chance) for _ in range(20)]
        for place, document in enumerate(documents):
            files.append(tmp_path / f"{number}-{place}.json")
            files[-1].write_text(json.dumps(document), encoding="utf-8")
            expected.append(holds(document))
    found = verdicts(files)
    assert [verdict["ok"] for verdict in found] == expected
    failed = {verdict.get("failed") for verdict in found}
    assert failed >= {None, "Topology", "Bound of all schedules", "Schedule", "Loads"}
    assert found[0]["gap"] == "0"
    assert found[0]["digest"] == hashlib.sha256(files[0].read_bytes()).hexdigest()


def edited(document: Any, edits: list[list[Any]]) -> Any:
    """Put values at ways, or remove what is there."""
    copied = copy.deepcopy(document)
    for way, *value in edits:
        holder = copied
        for key in way[:-1]:
            holder = holder[key]
        if value:
            holder[way[-1]] = value[0]
        else:
            del holder[way[-1]]
    return copied


@with_node
def test_the_checker_agrees_with_the_conformance_folder(tmp_path: Path) -> None:
    """Every plan and every forgery gets the stated verdict; right plans have the stated bandwidth and gap."""
    folder = Path(collopt.__file__).parent / "checker" / "conformance"
    index = json.loads((folder / "index.json").read_text(encoding="utf-8"))
    for stated, verdict in zip(
        index["plans"], verdicts([folder / plan["file"] for plan in index["plans"]]), strict=True
    ):
        assert verdict["ok"] == stated["right"], (stated, verdict)
        for name in ("algbw", "gap") if stated["right"] else ():
            assert verdict[name] == stated[name], (stated, verdict)
    files = []
    for number, forgery in enumerate(index["forgeries"]):
        document = json.loads((folder / forgery["of"]).read_text(encoding="utf-8"))
        files.append(tmp_path / f"{number}.json")
        files[-1].write_text(json.dumps(edited(document, forgery["edits"])), encoding="utf-8")
    for forgery, verdict in zip(index["forgeries"], verdicts(files), strict=True):
        assert not verdict["ok"], forgery


@with_node
@pytest.mark.parametrize(
    ("change", "step"),
    [
        (lambda text: text[:-40], "File"),
        (lambda text: text.replace('"version": 10', '"version": 8'), "File"),
        (lambda text: text.replace('"planner"', '"collective"', 1), "File"),
        (lambda text: text.replace('"planner"', '"planer"', 1), "File"),
        (lambda text: "\ufeff[" + "[" * 200_000, "File"),
        (lambda text: text.replace('"gpu1", 12,', '"gpu1", 12.5,', 1), "Topology"),
        (lambda text: text.replace('"trees_per_root": 1', '"trees_per_root": 100000000000000000000'), "Schedule"),
    ],
)
def test_damaged_files_are_refuted_at_a_step(tmp_path: Path, change: Any, step: str) -> None:
    """Files that are cut short, of other versions, with keys twice, or with numbers out of range fail."""
    path = tmp_path / "plan.json"
    collopt.plan(complete(4, bandwidth=12), "allgather").save(path)
    path.write_text(change(path.read_text(encoding="utf-8")), encoding="utf-8")
    (verdict,) = verdicts([path])
    assert (verdict["ok"], verdict["failed"]) == (False, step)


def embedded(page: bytes) -> list[bytes]:
    """Plan files in a page."""
    return [gzip.decompress(base64.b64decode(packed)) for packed in re.findall(rb'id="plan-\d+">([^<]*)<', page)]


def test_a_page_holds_the_plan_files_that_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The texts are those of the saved files, in order; what would exceed the limit stays out."""
    plans = [collopt.plan(ring(4, bandwidth=25), "allgather", planner=name) for name in ("auto", "ring")]
    saved = []
    for plan in plans:
        plan.save(tmp_path / "plan.json")
        saved.append((tmp_path / "plan.json").read_bytes())
    page = pages.report_page(plans)
    assert embedded(page) == saved
    assert len(page) < pages.MAX_PAGE
    monkeypatch.setattr(pages, "MAX_PAGE", len(page) - 1)
    assert embedded(pages.report_page(plans)) == saved[:1]


VERDICT = "document.getElementById('proof-verdict')"
PRESSED = "document.activeElement.id"


def check(page: Page, outcome: str) -> str:
    """Wait for a verdict and return its text."""
    page.wait_for(f"{VERDICT}.className === '{outcome}'")
    text: str = page.run(f"{VERDICT}.textContent")
    return text


@with_browser
@pytest.mark.slow
@pytest.mark.parametrize(("width", "scheme"), [(400, "light"), (1600, "dark")])
def test_the_page_proves_its_plan_by_mouse_and_keyboard(
    browser: Browser, tmp_path: Path, width: int, scheme: str
) -> None:
    """The steps, the sums, the cut and the digest of the saved file are shown, and the page still fits."""
    plan, path = collopt.plan(ring(4, bandwidth=25), "allgather"), tmp_path / "report.html"
    write_report(plan, path)
    plan.save(tmp_path / "plan.json")
    digest = hashlib.sha256((tmp_path / "plan.json").read_bytes()).hexdigest()
    page = browser.open(path, width, scheme=scheme)
    page.run("document.getElementById('check-proof').scrollIntoView({ behavior: 'instant', block: 'center' })")
    middle = "(({ x, y, width, height }) => [x + width / 2, y + height / 2])"
    page.point(f"{middle}(document.getElementById('check-proof').getBoundingClientRect())", click=True)
    assert digest in check(page, "proved")
    assert page.run("document.querySelectorAll('#proof-steps > .tick').length") == 7
    assert page.run("document.querySelector('#proof-steps tbody tr:last-child td:last-child').textContent") == "50"
    assert page.run("document.querySelectorAll('#proof-view .link.marked').length") == 2
    page.run("document.getElementById('check-proof').focus()")
    page.press("Tab")
    assert page.run(PRESSED) == "plan-file"
    page.run("document.getElementById('check-proof').focus()")
    page.press(" ")
    page.wait_for(f"{VERDICT}.className === ''")
    assert digest in check(page, "proved")
    page.run("document.querySelector('#proof-steps li:nth-child(6) .chip').focus()")
    page.press(" ")
    page.wait_for("document.querySelectorAll('#proof-view .link.marked').length > 0")
    assert page.run("document.documentElement.scrollWidth") == width
    assert page.console == []


@with_browser
@pytest.mark.slow
def test_the_page_tells_a_forged_plan_in_red(browser: Browser, tmp_path: Path) -> None:
    """A load that somebody changed, in the page or in a file, is refuted at its step."""
    plan, path = collopt.plan(ring(4, bandwidth=25), "allgather"), tmp_path / "report.html"
    write_report(plan, path)
    content = path.read_bytes()
    (text,) = embedded(content)
    wrong = re.sub(rb'("link_loads": \[)\d+', rb"\g<1>77", text)
    packed = re.search(rb'id="plan-0">([^<]*)<', content)
    assert packed is not None
    path.write_bytes(content.replace(packed[1], base64.b64encode(gzip.compress(wrong))))
    page = browser.open(path)
    page.run("document.getElementById('check-proof').click()")
    told = check(page, "refuted")
    assert told.startswith("✗ Not proved: in the step Loads, the schedule puts ")
    assert hashlib.sha256(wrong).hexdigest() in told
    assert page.run(f"getComputedStyle({VERDICT}).color") == "rgb(161, 32, 27)"
    assert page.run("document.querySelector('#proof-steps .failed strong').textContent") == "Loads"
    (tmp_path / "plan.json").write_bytes(text)
    root = browser.ask("DOM.getDocument", page.session)["root"]["nodeId"]
    node = browser.ask("DOM.querySelector", page.session, nodeId=root, selector="#plan-file")["nodeId"]
    browser.ask("DOM.setFileInputFiles", page.session, nodeId=node, files=[str(tmp_path / "plan.json")])
    assert hashlib.sha256(text).hexdigest() in check(page, "proved")
    assert page.console == []
