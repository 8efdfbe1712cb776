"""The page of the documentation that holds every row, and the file of rows that it is made of."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path

from .rows import Item, Row

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reference" / "papers.md"
PICTURES = ROOT / "docs" / "pictures"
RESULTS = Path(__file__).parent / "results"
HEAD = """# The papers, recomputed

Tables and figures of the four papers: the printed value, ours, and why they differ where they do. `python -m
benchmarks.papers`, in a checkout, prints one of them or writes this page again:

<!-- not run: recomputes everything, which takes minutes -->
```console
$ python -m benchmarks.papers forestcoll table-1
$ python -m benchmarks.papers --write
```

Values of the tables and figures are those of the papers' texts. These texts have no page numbers, so every printed
value has its table, row and column, or the figure, section or theorem that states it. A row without a printed value
stands for a curve or bar without a number. "same" means equal at the digits that the paper prints, "in the range" that
a printed range holds it. Times are of the machine that wrote the page. The tests recompute the rows that take little
time and compare them with this page.
"""
PAPERS = {
    "forestcoll": (
        "ForestColl",
        "Throughput-Optimal Collective Communications on Heterogeneous Network Fabrics",
    ),
    "direct-connect": (
        "Direct-connect",
        "Efficient Direct-Connect Topologies for Collective Communications",
    ),
    "fast": ("FAST", "An Efficient Scheduler for All-to-All GPU Communication"),
    "pipeline": ("Pipeline schedules", "Bandwidth Optimal Pipeline Schedule for Collective Communication"),
}
"""Heading and title of each paper."""
Texts = list[dict[str, str]]
SHOWN = ("case", "where", "printed", "ours", "unit", "verdict")


def as_text(row: Row) -> dict[str, str]:
    """A row as the page and the file of results hold it."""
    kept = {"case": row.case, "where": row.where, "printed": row.printed, "ours": row.text, "unit": row.unit}
    return {**kept, "verdict": row.verdict, "measured": "yes" if row.measured else ""}


def stored(paper: str) -> dict[str, Texts]:
    """The rows of a paper's items as they were last written."""
    path = RESULTS / f"{paper}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def store(paper: str, found: Mapping[str, Texts]) -> None:
    """Replace the rows of some items of a paper."""
    RESULTS.mkdir(exist_ok=True)
    text = json.dumps(stored(paper) | dict(found), indent=1, ensure_ascii=False)
    (RESULTS / f"{paper}.json").write_text(text + "\n", encoding="utf-8")


def write_page(papers: Mapping[str, Iterable[Item]]) -> None:
    """Write the page from the stored rows."""
    parts = [HEAD]
    for paper, items in papers.items():
        heading, title = PAPERS[paper]
        parts.append(f"## {heading}\n\n*{title}* (`{paper}`).\n")
        found = stored(paper)
        parts += [_section(paper, item, found[item.name]) for item in items if item.name in found]
    PAGE.write_text("\n".join(parts), encoding="utf-8")


def picture_of(paper: str, item: Item) -> Path:
    """Where an item's plot lies."""
    return PICTURES / f"papers-{paper}-{item.name}.svg"


def table(rows: Texts) -> str:
    """Rows as a Markdown table."""
    lines = ["| case | where | printed | ours | | |", "| --- | --- | ---: | ---: | --- | --- |"]
    lines += [f"| {' | '.join(row[column] for column in SHOWN)} |" for row in rows]
    return "\n".join(lines)


def _section(paper: str, item: Item, rows: Texts) -> str:
    parts = [
        f"### {PAPERS[paper][0]}, {item.name.replace('-', ' ')}: {item.title}",
        f"{item.section}. {item.note}".strip(),
    ]
    if item.plot is not None:
        parts.append(f"![{item.title}](../pictures/{picture_of(paper, item).name})")
    return "\n\n".join([*parts, table(rows)]) + "\n"
