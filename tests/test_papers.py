"""The papers' tables and figures in `benchmarks/papers`: what tests can repeat in time equals what the page says."""

from __future__ import annotations

import re
from fractions import Fraction
from pathlib import Path

import pytest
from papers import page
from papers.papers import ITEMS
from papers.rows import Item, Row

PLACE = re.compile(
    r"(arXiv, )?(sections?|appendix|appendices|table|figure|Theorem|Corollary|inequality|question) [\dA-H(]"
)
CELL = re.compile(r"\b(row|column|caption)\b")
ALL = [pytest.param(paper, item, id=f"{paper}-{item.name}") for paper, items in ITEMS.items() for item in items]


@pytest.mark.parametrize(("paper", "item"), ALL)
def test_small_rows_are_those_of_the_page(paper: str, item: Item) -> None:
    """Times are not compared, but the other columns of their rows are; no item is left out."""
    stored = {row["case"]: row for row in page.stored(paper)[item.name]}
    repeated = list(map(page.as_text, item.rows(True)))
    assert repeated
    for row in repeated:
        expected = stored[row["case"]]
        assert row == (expected if not row["measured"] else expected | {"ours": row["ours"]})


@pytest.mark.parametrize("paper", ITEMS)
def test_printed_values_carry_their_place(paper: str) -> None:
    """Where to look them up: in tables the row and column, else what states them; cases of an item differ."""
    for name, rows in page.stored(paper).items():
        assert len({row["case"] for row in rows}) == len(rows), name
        for row in rows:
            assert PLACE.match(row["where"]), row
            if "table" in name and row["printed"] and row["where"].startswith(("table", "arXiv, table")):
                assert CELL.search(row["where"]), row


def test_page_is_written_from_the_stored_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody edits it by hand, and no item is missing."""
    written = page.PAGE.read_text(encoding="utf-8")
    monkeypatch.setattr(page, "PAGE", tmp_path / "papers.md")
    page.write_page(ITEMS)
    assert (tmp_path / "papers.md").read_text(encoding="utf-8") == written
    for paper, items in ITEMS.items():
        assert list(page.stored(paper).keys() - {item.name for item in items}) == []
        assert all(page.picture_of(paper, item).exists() for item in items if item.plot is not None)


@pytest.mark.parametrize(
    ("printed", "ours", "text", "differs"),
    [
        ("320", Fraction(320), "320", False),
        ("343", Fraction(2400, 7), "343", False),
        ("343.0", Fraction(2400, 7), "342.9", True),
        ("2.21e-2", 0.022149, "2.21e-2", False),
        ("2.21e-2", 0.0222, "2.22e-2", True),
        ("1.01-1.1", (1.014, 1.08), "1.01-1.08", False),
        ("1.01-1.1", (1.014, 1.2), "1.01-1.20", True),
        ("1.01-1.1", 1.05, "1.05", False),
        ("over 3", 3.5, "4", True),
        ("n/a", "n/a", "n/a", False),
        ("", Fraction(1, 3), "0.3333", False),
    ],
)
def test_values_are_compared_at_the_printed_digits(printed: str, ours: object, text: str, differs: bool) -> None:
    """A range holds what lies in it, and what differs needs a reason."""
    row = Row("case", "table 1", printed, ours, why="because")  # type: ignore[arg-type]
    assert (row.text, row.differs) == (text, differs)
    if differs:
        with pytest.raises(ValueError, match="no line says why"):
            Row("case", "table 1", printed, ours)  # type: ignore[arg-type]
