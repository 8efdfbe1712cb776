"""Recompute tables and figures of the papers: ``python -m benchmarks.papers forestcoll table-1``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable

from rich.console import Console
from rich.table import Table

from collopt.report import save_figure

from . import page
from .papers import ITEMS, PAPERS_BY_NAME
from .rows import Item, Row

PLAIN_WIDTH = 160


def main() -> None:
    """Print what was asked for, and with ``--write`` keep it and write the page."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.papers", description=__doc__)
    parser.add_argument("paper", nargs="?", choices=list(ITEMS), help="all by default")
    parser.add_argument("item", nargs="*", help="such as table-1; all of the paper by default")
    parser.add_argument("--small", action="store_true", help="only what the tests repeat")
    parser.add_argument(
        "--write", action="store_true", help="keep the rows, draw the plots and write docs/reference/papers.md"
    )
    arguments = parser.parse_args()
    if arguments.write and arguments.small:
        parser.error("--write keeps whole items: leave --small out")
    console = Console() if sys.stdout.isatty() else Console(width=PLAIN_WIDTH)
    for paper in [arguments.paper] if arguments.paper else ITEMS:
        items = PAPERS_BY_NAME[paper]
        if unknown := set(arguments.item) - set(items):
            parser.error(f"{paper} has no item {min(unknown)!r}; it has {', '.join(items)}")
        for name in arguments.item or items:
            rows = list(items[name].rows(arguments.small))
            if rows:
                console.print(_table(f"{paper} {name}: {items[name].title}", rows))
            if arguments.write:
                _keep(paper, items[name], rows)
    if arguments.write:
        page.write_page(ITEMS)
        print(f"wrote {page.PAGE}")


def _keep(paper: str, item: Item, rows: list[Row]) -> None:
    page.store(paper, {item.name: [page.as_text(row) for row in rows]})
    if item.plot is not None:
        save_figure(item.plot(rows), page.picture_of(paper, item))


def _table(title: str, rows: Iterable[Row]) -> Table:
    table = Table("case", "where", "printed", "ours", "unit", "", title=title)
    for row in rows:
        table.add_row(row.case, row.where, row.printed, row.text, row.unit, row.verdict)
    return table


if __name__ == "__main__":
    main()
