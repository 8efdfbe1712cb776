"""Runs what README.md, CONTRIBUTING.md and docs/ tell people to type, and follows their links.

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
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE

FENCE = re.compile(r"^(?P<indent> *)(?P<mark>`{3,}|~{3,})(?P<info>[^`]*)$")
COMMENT = re.compile(r"^\s*<!-- (?P<key>not run|exit status): (?P<value>.+) -->\s*$")
LINK = re.compile(r"(?<!\\)\]\((?P<target>[^)\s]+)(?: \"[^\"]*\")?\)")
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
        result = subprocess.run(
            [sys.executable, "-m", "collopt", *arguments],
            cwd=folder,
            # A plain terminal of a fixed width, so that what is printed does not depend on who runs the tests.
            env={**os.environ, "COLUMNS": "120", "NO_COLOR": "1", "TERM": "dumb"},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        expected = block.exit_status if position == len(commands) - 1 else 0
        printed = result.stdout + result.stderr
        assert result.returncode == expected, (
            f"line {block.line}: `{command}` ended with {result.returncode}\n{printed}"
        )
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


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_block_of_the_page_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the page tells people to type works, in the order of the page."""
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, Any] = {"__name__": "__main__"}
    for block in fenced_blocks(page.read_text(encoding="utf-8")):
        assert block.language, f"line {block.line}: the fence names no language; use `text` for plain text"
        if not block.not_run:
            run_block(block, page, namespace, tmp_path)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_relative_link_of_the_page_leads_somewhere(page: Path) -> None:
    """A link to a file of this repository names one that exists."""
    text = page.read_text(encoding="utf-8")
    for block in fenced_blocks(text):
        text = text.replace(block.text, "")
    targets = [match["target"].partition("#")[0] for match in LINK.finditer(text)]
    files = [target for target in targets if target and ":" not in target]
    assert [target for target in files if not (page.parent / target).exists()] == []


def page_with(*lines: str) -> list[Block]:
    """The blocks of a page that is given by its lines."""
    return fenced_blocks("\n".join(lines) + "\n")


def test_comment_above_a_fence_reaches_its_block() -> None:
    """`not run` and `exit status` belong to the block right below them, and to no other."""
    first, second, third = page_with(
        "<!-- not run: takes a cluster -->", "```python", "1 / 0", "```",
        "<!-- exit status: 2 -->", "```console", "$ collopt", "```", "", "```python", "```",
    )  # fmt: skip
    assert (first.not_run, first.exit_status) == (True, 0)
    assert (second.not_run, second.exit_status) == (False, 2)
    assert (third.not_run, third.exit_status) == (False, 0)


def test_failing_python_block_fails_the_page(tmp_path: Path) -> None:
    """An exception in a block reaches the test."""
    (block,) = page_with("```python", "1 / 0", "```")
    with pytest.raises(ZeroDivisionError):
        run_block(block, Path("page.md"), {}, tmp_path)


def test_wrong_answer_in_a_pycon_block_fails_the_page(tmp_path: Path) -> None:
    """A shown value is compared, and names of earlier blocks are known."""
    (right,) = page_with("```pycon", ">>> two + 1", "3", "```")
    (wrong,) = page_with("```pycon", ">>> two + 1", "4", "```")
    run_block(right, Path("page.md"), {"two": 2}, tmp_path)
    with pytest.raises(AssertionError, match="Expected"):
        run_block(wrong, Path("page.md"), {"two": 2}, tmp_path)


def test_console_block_pairs_commands_with_their_output() -> None:
    """Output belongs to the command above it, and a backslash joins two lines."""
    (block,) = page_with("```console", "$ collopt a \\", "    b", "one", "two", "$ collopt c", "```")
    assert console_commands(block) == [("collopt a      b", "one\ntwo\n"), ("collopt c", "")]


def test_console_block_refuses_programs_that_it_does_not_run(tmp_path: Path) -> None:
    """A command that the tests do not run has to say so on the page."""
    (block,) = page_with("```console", "$ rm -r something", "```")
    with pytest.raises(AssertionError, match="only collopt and make"):
        run_console(block, tmp_path)


def test_console_block_refuses_a_make_target_that_does_not_exist(tmp_path: Path) -> None:
    """`make` commands are not run, but their targets exist."""
    (good,) = page_with("```console", "$ make test TESTFLAGS=", "```")
    (bad,) = page_with("```console", "$ make coffee", "```")
    run_console(good, tmp_path)
    with pytest.raises(AssertionError, match="no target"):
        run_console(bad, tmp_path)
