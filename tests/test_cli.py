"""The program as a whole: help, version, streams, exit status, and what surrounds the commands."""

from __future__ import annotations

import importlib.metadata
import os
import re
import signal
import subprocess
import sys
import threading
from itertools import product
from pathlib import Path

import pytest
import typer

import collopt
from cli_calls import Cli, process, refusal, terminal_output
from collopt.cli import main
from collopt.cli.app import app
from collopt.cli.terminal.output import note
from collopt.cli.terminal.progress import computing
from collopt.errors import SolverError
from collopt.support.formatting import abbreviated_names
from slow_cases import slow_where

COMMANDS = [
    "import", "bound", "plan", "groups", "export", "family", "compare", "survive", "sensitivity", "verify", "score",
    "certify", "show", "report", "explore", "run", "lint", "topology-file", "bench", "calibrate", "expect", "diagnose",
    "probe", "find", "compare-networks", "topologies", "doctor",
]  # fmt: skip
WITHOUT_JSON = {"explore", "export", "show", "report"}
"""They write files, figures and pages, and have no figures to tell."""
ESCAPE = "\x1b["
STREAMS = slow_where(
    product((["topologies"], ["topologies", "--json"], ["--help"], ["--version"]), ("", "1")),
    lambda case: case not in ((["topologies"], ""), (["topologies"], "1"), (["--help"], "")),
)
"""What is printed, and whether Python keeps it for a while."""


def test_alone_it_shows_its_help(cli: Cli) -> None:
    """Without arguments the program prints the same help as with `--help` and `-h`."""
    answer = cli()
    assert (answer.status, answer.err) == (0, "")
    for command in COMMANDS:
        assert command in answer.out
    assert cli("--help") == cli("-h") == answer


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_and_json(cli: Cli, command: str) -> None:
    """Help goes to standard output with status 0 and lists `--json` wherever there are figures."""
    answer = cli(command, "-h")
    assert (answer.status, answer.err) == (0, "")
    assert ("--json" in answer.out) == (command not in WITHOUT_JSON)
    assert "--verbose" in answer.out


def test_version(cli: Cli) -> None:
    """`--version` prints one line."""
    answer = cli("--version")
    assert (answer.status, answer.out, answer.err) == (0, f"collopt {collopt.__version__}\n", "")


def test_the_page_of_the_documentation_has_every_command_and_option() -> None:
    """docs/reference/cli.md describes every option in the section of its command, or in one that it refers to."""
    page = (Path(__file__).parents[1] / "docs" / "reference" / "cli.md").read_text(encoding="utf-8")
    sections = {part.partition("\n")[0]: part for part in re.split(r"(?m)^## ", page)}
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    assert list(commands) == COMMANDS
    for name, command in commands.items():
        assert f"`collopt {name}" in page
        flags = {flag for parameter in command.params for flag in parameter.opts if flag.startswith("-")}
        told = sections["# Command line"] + sections.get(name.capitalize(), "")
        told += sections["The network"] if "--fabric" in flags else ""
        told += sections["The collective"] if "--root" in flags else ""
        assert [flag for flag in sorted(flags) if not re.search(rf"(?<![\w-]){flag}(?![\w-])", told)] == [], name


def test_installed_script_and_module_are_the_same_program() -> None:
    """`collopt` is `collopt.cli:main`; `python -m collopt` works without the script."""
    (script,) = importlib.metadata.entry_points(group="console_scripts", name="collopt")
    assert script.load() is main
    answer = process("bound", "ring", "--nodes", 3, "allgather", "--json")
    assert (answer.status, answer.data["inverse_rate"], answer.err) == (0, "1", "")


def test_status_and_streams_of_the_process() -> None:
    """An error leaves standard output empty and ends in status 2."""
    assert "did you mean ring?" in refusal(process("bound", "rung", "allgather"))


@pytest.mark.parametrize(("words", "unbuffered"), STREAMS)
def test_whoever_stops_reading_causes_no_stack_trace(words: list[str], unbuffered: str) -> None:
    """A closed pipe ends the program quietly with status 141."""
    reader, writer = os.pipe()
    os.close(reader)
    result = subprocess.run(
        [sys.executable, "-m", "collopt", *words],
        stdout=writer,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
        timeout=100,
        env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
    )
    os.close(writer)
    assert result.stderr == ""
    # Help is for readers, who see what they want and leave, as with `| head`.
    assert result.returncode == (0 if words == ["--help"] else 141)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no /dev/full")
@pytest.mark.parametrize(("words", "unbuffered"), STREAMS)
def test_output_that_does_not_fit_is_an_error(words: list[str], unbuffered: str) -> None:
    """A full disk ends in status 2 and one line."""
    with Path("/dev/full").open("w") as full:
        result = subprocess.run(
            [sys.executable, "-m", "collopt", *words],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            timeout=100,
            env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
        )
    assert result.returncode == 2
    assert re.fullmatch(r"collopt: error: .*No space left on device\n", result.stderr)


def test_closed_standard_output_is_an_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A closed standard output, where Python has no `sys.stdout`, ends in status 2 and one line."""
    monkeypatch.setattr(sys, "stdout", None)
    assert main(["topologies"]) == 2
    assert capsys.readouterr().err == "collopt: error: standard output is closed\n"


def test_color_and_progress_are_for_terminals() -> None:
    """Colors and progress go to terminals only, and the cursor stays visible."""
    words = ("bound", "ring", "--nodes", "3", "allgather")
    seen = terminal_output(*words)
    assert ESCAPE in seen
    assert "computing the bound of allgather on ring-3" in seen
    assert seen.index(f"{ESCAPE}?25h") < seen.index("computing the bound of allgather")
    answer = process(*words)
    assert (ESCAPE in answer.out, answer.err) == (False, "")


def test_interrupts_end_in_their_own_status(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """An interrupt ends in status 130 without a stack trace."""

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("collopt.planners.load_plan", interrupted)
    answer = cli("verify", "plan.json")
    assert (answer.status, answer.out, answer.err) == (130, "", "")


def test_a_defect_of_our_own_is_told_in_one_line_too(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every error that collopt raises on purpose is one line."""

    def broken(*_: object) -> None:
        raise SolverError("a theorem\n  failed")

    monkeypatch.setattr("collopt.planners.bound", broken)
    assert refusal(cli("bound", "mi250", "allgather")) == "a theorem failed"


def test_other_defects_are_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other exceptions reach Python's own report."""

    def broken(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("collopt.planners.bound", broken)
    with pytest.raises(ZeroDivisionError):
        main(["bound", "mi250", "allgather"])


def test_ctrl_c_ends_a_computation_at_once() -> None:
    """Kernels do not look for it, so the system's own action is set, and Python's afterwards."""
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    with computing("something"):
        assert signal.getsignal(signal.SIGINT) is signal.SIG_DFL
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    with pytest.raises(ZeroDivisionError), computing("something"):
        raise ZeroDivisionError
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_computation_may_run_in_another_thread() -> None:
    """Only the main thread may set what a signal does."""
    seen = []

    def compute() -> None:
        with computing("something"):
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=compute)
    thread.start()
    thread.join()
    assert seen == [signal.default_int_handler]


def test_messages_are_one_line_of_printable_characters(capsys: pytest.CaptureFixture[str]) -> None:
    """Messages escape control characters and line breaks of what they quote."""
    note("two\nlines,  a \x1b[31mcolor and a \udcff")
    assert capsys.readouterr().err == "two lines, a \\x1b[31mcolor and a \\udcff\n"


@pytest.mark.parametrize(
    ("names", "text"),
    [
        ([], ""),
        (["a"], "a"),
        (["gpu0", "gpu1", "gpu3", "gpu2"], "gpu0..1, gpu3, gpu2"),
        (["n08", "n09", "n10"], "n08..10"),
        (["ib", "ib0", "ib1"], "ib, ib0..1"),
        (["0", "1", "2"], "0..2"),
        ([f"gpu{number}" for number in range(0, 30, 2)],
         "gpu0, gpu2, gpu4, gpu6, gpu8, gpu10, gpu12, gpu14, gpu16, gpu18, gpu20, gpu22, and 3 more"),
        (["gpu1" + "0" * 30, "gpu1" + "0" * 29 + "1"], f"gpu1{'0' * 30}..{'0' * 17}1"),
    ],
)  # fmt: skip
def test_names_in_short(names: list[str], text: str) -> None:
    """Runs of numbers are joined, and names that are too many or too long are cut."""
    assert abbreviated_names(names) == text
