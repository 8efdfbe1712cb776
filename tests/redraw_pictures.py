"""Draws the pictures in docs/pictures again, by running the pages that have commands for them: ``make pictures``."""

from __future__ import annotations

import contextlib
import re
import tempfile
from pathlib import Path

from doc_pages import PAGES, PICTURES, fenced_blocks, run_page

SHOWN = re.compile(r"pictures/([\w-]+\.svg)")


def redraw(page: Path, drawn: set[str]) -> None:
    """Run a page if it shows pictures that it also draws and no other page has drawn, and keep these."""
    text = page.read_text(encoding="utf-8")
    blocks = "".join(block.text for block in fenced_blocks(text))
    wanted = [name for name in dict.fromkeys(SHOWN.findall(text)) if name in blocks and name not in drawn]
    if not wanted:
        return
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        run_page(page, Path(folder))
        for name in wanted:
            picture = (Path(folder) / name).read_bytes()
            (PICTURES / name).write_bytes(picture)
            drawn.add(name)
            print(f"{page.name}: {name}, {len(picture)} bytes")


if __name__ == "__main__":
    PICTURES.mkdir(exist_ok=True)
    done: set[str] = set()
    for each in PAGES:
        redraw(each, done)
