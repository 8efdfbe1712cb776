"""Runs what README.md, CONTRIBUTING.md and docs/ tell people to type.

The conventions, which CONTRIBUTING.md repeats for writers:

- Every fence names its language.  The blocks of one page run from top to bottom, in one empty folder.
- ``python`` blocks of one page share one namespace; ``pycon`` blocks (``>>>``) are doctests in the same namespace.
- In ``console`` blocks a line ``$ collopt ...`` is run; the lines below it, if any, are its output, in which ``...``
  stands for anything.  ``$ make target`` only has to name a target that exists.
- ``<!-- exit status: 2 -->`` on the line above a console block tells that its last command fails on purpose.
- ``<!-- not run: reason -->`` above a block leaves it out.
"""

from __future__ import annotations

import doctest
import os
import re
import shlex
from contextlib import chdir, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any
from unittest.mock import patch

from cli_calls import without_note
from collopt.cli import main

__all__ = [
    "PAGES",
    "PICTURES",
    "README",
    "ROOT",
    "Block",
    "console_commands",
    "fenced_blocks",
    "run_block",
    "run_console",
    "run_page",
]

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
PAGES = [README, ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
PICTURES = ROOT / "docs" / "pictures"
OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE

FENCE = re.compile(r"^(?P<indent> *)(?P<mark>`{3,}|~{3,})(?P<info>[^`]*)$")
COMMENT = re.compile(r"^\s*<!-- (?P<key>not run|exit status): (?P<value>.+) -->\s*$")
TARGET = re.compile(r"^([a-z]+):", re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """A fenced block: where its first line is, its language, its text, and the comment above it."""

    line: int
    language: str
    text: str
    not_run: bool
    exit_status: int


def fenced_blocks(page: str) -> list[Block]:
    """Every fenced block of a page in order; an unclosed fence is an error."""
    blocks = []
    lines = page.splitlines()
    number = 0
    while number < len(lines):
        opening = FENCE.match(lines[number])
        number += 1
        if not opening:
            continue
        start, indent = number, len(opening["indent"])
        closing = opening["indent"] + opening["mark"]
        while number < len(lines) and lines[number].rstrip() != closing:
            number += 1
        assert number < len(lines), f"the fence opened on line {start} is never closed"
        language = opening["info"].split()[0] if opening["info"].split() else ""
        comment = COMMENT.match(lines[start - 2]) if start >= 2 else None
        key, value = (comment["key"], comment["value"]) if comment else ("", "")
        text = "".join(line[indent:] + "\n" for line in lines[start:number])
        blocks.append(Block(start + 1, language, text, key == "not run", int(value) if key == "exit status" else 0))
        number += 1
    return blocks


def console_commands(block: Block) -> list[tuple[str, str]]:
    """The commands of a console block, each with the output shown below it; ``\\`` joins lines."""
    commands: list[tuple[str, str]] = []
    joined = block.text.replace("\\\n", " ")
    for line in joined.splitlines():
        if line.startswith("$ "):
            commands.append((line[2:], ""))
        else:
            assert commands, f"line {block.line}: a console block starts with its first command, `$ ...`"
            command, output = commands.pop()
            commands.append((command, output + line + "\n"))
    return commands


# A plain terminal of a fixed width, so that what is printed does not depend on who runs the tests.
TERMINAL = {"COLUMNS": "120", "NO_COLOR": "1", "TERM": "dumb"}


def call(arguments: list[str], folder: Path) -> tuple[int, str]:
    """Run collopt in this process, which saves most commands the larger part of their time: imports."""
    out, err = StringIO(), StringIO()
    with (
        chdir(folder),
        patch.dict(os.environ, TERMINAL),
        redirect_stdout(out),
        redirect_stderr(err),
    ):
        status = main(arguments)
    return status, out.getvalue() + err.getvalue()


def run_console(block: Block, folder: Path) -> None:
    """Run the commands of a console block and compare what they print with what the page shows."""
    commands = console_commands(block)
    for position, (command, shown) in enumerate(commands):
        program, *arguments = shlex.split(command, comments=True)
        if program == "make":
            targets = TARGET.findall((ROOT / "Makefile").read_text(encoding="utf-8"))
            named = [word for word in arguments if "=" not in word]
            assert set(named) <= set(targets), f"line {block.line}: `{command}` names no target of the Makefile"
            continue
        assert program == "collopt", f"line {block.line}: only collopt and make run here; say <!-- not run: reason -->"
        status, printed = call(arguments, folder)
        printed = without_note(printed)
        expected = block.exit_status if position == len(commands) - 1 else 0
        assert status == expected, f"line {block.line}: `{command}` ended with {status}\n{printed}"
        if shown.strip():
            matches = doctest.OutputChecker().check_output(shown, printed, OPTIONS)
            assert matches, f"line {block.line}: `{command}` printed\n{printed}\nbut the page shows\n{shown}"


def run_block(block: Block, page: Path, namespace: dict[str, Any], folder: Path) -> None:
    """Run one block of a page; blocks in other languages are only read."""
    if block.language == "python":
        # Leading newlines make tracebacks name the line of the page.
        code = compile("\n" * (block.line - 1) + block.text, str(page), "exec")
        exec(code, namespace)
    elif block.language == "pycon":
        example = doctest.DocTestParser().get_doctest(block.text, namespace, page.name, str(page), block.line - 1)
        report: list[str] = []
        results = doctest.DocTestRunner(optionflags=OPTIONS).run(example, out=report.append, clear_globs=False)
        namespace.update(example.globs)
        assert results.failed == 0, "".join(report)
    elif block.language == "console":
        run_console(block, folder)


def run_page(page: Path, folder: Path) -> None:
    """Run the blocks of a page in the order of the page; the current folder has to be `folder`."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    for block in fenced_blocks(page.read_text(encoding="utf-8")):
        assert block.language, f"line {block.line}: the fence names no language; use `text` for plain text"
        if not block.not_run:
            run_block(block, page, namespace, folder)
