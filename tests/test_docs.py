"""Runs what README.md, CONTRIBUTING.md and docs/ tell people to type, follows links, and looks at pictures."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from papers.page import picture_of
from papers.papers import ITEMS

from doc_pages import (
    PAGES,
    PICTURES,
    ROOT,
    Block,
    fenced_blocks,
    run_block,
    run_console,
    run_page,
)

LINK = re.compile(r"(?<!\\)\]\((?P<target>[^)\s]+)(?: \"[^\"]*\")?\)")
MATPLOTLIB = re.compile("Matplotlib v[^,]*")
LONG = {
    *("all-to-all", "choose-a-topology", "cli", "direct-connect", "fast", "gallery", "in-network", "moe", "mscclpp"),
    *("refutations", "run-on-gpus", "schedule-all-to-allv", "see-a-plan", "why-not-rings"),
}  # pages that take more than a few seconds


def is_as_checked_in(drawn: Path) -> bool:
    """Whether a picture is one of docs/pictures, as far as the same matplotlib drew both, or is none of them."""
    known = PICTURES / drawn.name
    if not known.exists():
        return True
    old, new = known.read_text(encoding="utf-8"), drawn.read_text(encoding="utf-8")
    return old == new or MATPLOTLIB.findall(old) != MATPLOTLIB.findall(new)


@pytest.mark.parametrize(
    "page",
    [pytest.param(page, marks=pytest.mark.slow if page.stem in LONG else ()) for page in PAGES],
    ids=lambda page: str(page.relative_to(ROOT)),
)
def test_every_block_of_the_page_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the page tells people to type works, in the order of the page."""
    monkeypatch.chdir(tmp_path)
    run_page(page, tmp_path)
    assert [drawn.name for drawn in tmp_path.glob("*.svg") if not is_as_checked_in(drawn)] == [], "run `make pictures`"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_relative_link_of_the_page_leads_somewhere(page: Path) -> None:
    """A link to a file of this repository names one that exists."""
    text = page.read_text(encoding="utf-8")
    for block in fenced_blocks(text):
        text = text.replace(block.text, "")
    targets = [match["target"].partition("#")[0] for match in LINK.finditer(text)]
    files = [target for target in targets if target and ":" not in target]
    assert [target for target in files if not (page.parent / target).exists()] == []


def test_every_page_is_in_the_navigation() -> None:
    """mkdocs.yml lists each page of docs/ once, and those that are made of notebooks."""
    listed = re.findall(r"[\w/-]+\.md", str(yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))["nav"]))
    docs = ROOT / "docs"
    pages = [*docs.rglob("*.md"), *(page.with_suffix(".md") for page in docs.rglob("*.ipynb"))]
    assert sorted(listed) == sorted(str(page.relative_to(docs)) for page in pages)


def test_the_list_of_pages_leads_to_every_other() -> None:
    """docs/all-pages.md links each page of docs/; those of the Python reference are linked from its own first page."""
    docs = ROOT / "docs"
    linked = set(re.findall(r"\]\(([\w/-]+\.(?:md|ipynb))", (docs / "all-pages.md").read_text(encoding="utf-8")))
    found = [*docs.rglob("*.md"), *docs.rglob("*.ipynb")]
    pages = {str(page.relative_to(docs)) for page in found} - {"all-pages.md"}
    assert "(all-pages.md)" in (docs / "index.md").read_text(encoding="utf-8")
    apart = ("reference/api/", "how-to/objectives/")
    firsts = {f"{folder}index.md" for folder in apart}
    assert sorted({page for page in pages if not page.startswith(apart)} | firsts) == sorted(linked & pages)


def test_terms_of_the_glossary_are_different_and_in_order() -> None:
    """Two equal terms would share an anchor, and one of them be misnamed."""
    terms = re.findall(r"^(\S.*)\n(?=:   )", (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert len(terms) > 50
    assert terms == sorted(set(terms), key=lambda term: re.sub(r"\W+", " ", term.lower()))


def test_every_picture_is_drawn_and_shown() -> None:
    """Each file of docs/pictures is written by a block of the pages or by the papers' command, shown, and small."""
    pages = [page.read_text(encoding="utf-8") for page in PAGES]
    drawn = {name for text in pages for block in fenced_blocks(text) for name in re.findall(r"[\w-]+\.svg", block.text)}
    shown = {name for text in pages for name in re.findall(r"!\[[^\]]+\]\([\w./-]*pictures/([\w-]+\.svg)\)", text)}
    drawn |= {picture_of(paper, item).name for paper, items in ITEMS.items() for item in items if item.plot is not None}
    assert {picture.name for picture in PICTURES.iterdir()} == shown == drawn & shown
    assert sum(picture.stat().st_size for picture in PICTURES.iterdir()) < 1_500_000


def page_with(*lines: str) -> list[Block]:
    """The blocks of a page that is given by its lines."""
    return fenced_blocks("\n".join(lines) + "\n")


def test_wrong_answer_in_a_pycon_block_fails_the_page(tmp_path: Path) -> None:
    """A shown value is compared, and names of earlier blocks are known."""
    (right,) = page_with("```pycon", ">>> two + 1", "3", "```")
    (wrong,) = page_with("```pycon", ">>> two + 1", "4", "```")
    run_block(right, Path("page.md"), {"two": 2}, tmp_path)
    with pytest.raises(AssertionError, match="Expected"):
        run_block(wrong, Path("page.md"), {"two": 2}, tmp_path)


def test_console_block_refuses_a_make_target_that_does_not_exist(tmp_path: Path) -> None:
    """`make` commands are not run, but their targets exist."""
    (good,) = page_with("```console", "$ make test TESTFLAGS=", "```")
    (bad,) = page_with("```console", "$ make coffee", "```")
    run_console(good, tmp_path)
    with pytest.raises(AssertionError, match="no target"):
        run_console(bad, tmp_path)
