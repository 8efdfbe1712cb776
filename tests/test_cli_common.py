"""What every command has: logs, threads, the seed, forms of output, and completion by shells."""

from __future__ import annotations

import csv
import inspect
import io
import logging
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from cli_calls import Cli, process, refusal
from collopt.cli.app import COMMANDS, GROUPS
from collopt.cli.terminal import parameters
from collopt.cli.terminal.output import emit_csv
from collopt.cli.terminal.parameters import complete_collective, complete_planner, complete_topology
from collopt.planners import PLANNERS
from collopt.planners.plans.stages import Trace

RING = ("ring", "--nodes", "4", "allgather")


def test_verbose_tells_stages_on_standard_error(cli: Cli) -> None:
    """`-v` logs stages to standard error and leaves standard output as it is."""
    quiet, told = cli("plan", *RING), cli("plan", *RING, "-v")
    assert (quiet.err, told.out) == ("", quiet.out)
    lines = told.err.splitlines()
    assert all(line.startswith("collopt: info: ") and line.endswith(" s") for line in lines)
    assert any(line.startswith("collopt: info: tree packing: ") for line in lines)
    assert lines[-1].startswith("collopt: info: planning allgather on ring-4: ")


@pytest.mark.parametrize(
    "words", [("plan", *RING, "-vv"), ("plan", "-v", *RING, "-v"), ("-v", "plan", *RING, "--verbose")]
)
def test_twice_verbose_tells_more(cli: Cli, words: tuple[str, ...]) -> None:
    """`-v` twice, before or after the command's name, also logs when stages start."""
    assert "collopt: debug: tree packing ...\n" in cli(*words).err


def test_threads_reach_the_solver(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """`--threads` limits HiGHS for the time of the command."""
    from collopt.solvers import HighsOptions

    seen = []
    monkeypatch.setattr("collopt.planners.bound", lambda *_, **__: seen.append(HighsOptions().settings()["threads"]))
    with pytest.raises(AttributeError):
        cli("bound", *RING, "--threads", 3)
    assert seen == [3]
    assert "threads" not in HighsOptions().settings()
    assert cli("plan", "ring", "--nodes", 3, "allreduce", "--planner", "allreduce-lp", "--threads", 2).status == 0


def test_the_seed_reaches_the_heuristics(cli: Cli, tmp_path: Path) -> None:
    """Equal seeds make equal files, and every seed makes a plan that verifies."""
    files = []
    for number, seed in enumerate(([], ["--seed", 0], ["--seed", 1], ["--seed", 1])):
        files.append(tmp_path / f"{number}.json")
        words = ("hypercube", "--set", "dimension=3", "all_to_all", "--planner", "shortest-paths", "-o", files[-1])
        assert cli("plan", *words, *seed).status == 0
        assert cli("verify", files[-1]).status == 0
    contents = [file.read_bytes() for file in files]
    assert contents[0] == contents[1] != contents[2] == contents[3]


def test_text_in_csv_is_no_formula(capsys: pytest.CaptureFixture[str]) -> None:
    """It follows an apostrophe where a spreadsheet would run it; numbers stay numbers."""
    formulas, numbers = ("=1", "@SUM(A1)", "+cmd|1", "-2+3", "\t=1"), (-0.5, "-1/3", "-1.5e-3", "+2")
    emit_csv([{"name": name, **dict(enumerate(numbers))} for name in formulas])
    rows = list(csv.reader(io.StringIO(capsys.readouterr().out)))[1:]
    assert rows == [[f"'{name}", *map(str, numbers)] for name in formulas]


@pytest.mark.parametrize(
    "words",
    [
        ("bound", *RING),
        ("plan", *RING),
        ("compare", *RING, "--planner", "ring"),
        ("topologies",),
        ("topologies", "ring"),
    ],
)
def test_tables_come_as_csv_too(cli: Cli, words: tuple[str, ...]) -> None:
    """CSV has a header, rows of equal length, and nothing else."""
    answer = cli(*words, "--csv")
    assert (answer.status, answer.err) == (0, "")
    header, *rows = csv.reader(io.StringIO(answer.out))
    assert rows
    assert {len(row) for row in rows} == {len(header)}
    assert len(set(header)) == len(header)
    assert refusal(cli(*words, "--csv", "--json")).startswith("--json and --csv are mutually exclusive")


def completed(*words: str) -> list[str]:
    """What bash is offered for the last word."""
    environment = {
        "_COLLOPT_COMPLETE": "complete_bash",
        "COMP_WORDS": " ".join(words),
        "COMP_CWORD": str(len(words) - 1),
    }
    answer = process(**environment)
    assert (answer.status, answer.err) == (0, "")
    return answer.out.split()


@pytest.mark.slow
def test_shells_complete_commands_names_and_collectives() -> None:
    """The program completes commands, networks, collectives and planners for bash."""
    assert completed("collopt", "comp") == ["compare", "compare-networks"]
    boxes = ["dgx-a100", "dgx-h100", "dgx-h200", "dgx-b200", "dgx-b300", "dgx-spark"]
    assert completed("collopt", "plan", "dgx-") == boxes
    assert completed("collopt", "plan", "mi250", "all_to") == ["all_to_all", "all_to_allv"]
    assert completed("collopt", "plan", "--planner", "blin") == ["blink"]


def test_completion_of_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files complete a word that begins no name of the catalogue, hidden files never."""
    monkeypatch.chdir(tmp_path)
    for name in ("zoo.json", ".zoo.json"):
        (tmp_path / name).touch()
    (tmp_path / "zebra").mkdir()
    assert complete_topology("tor") == ["torus"]
    assert complete_topology("z") == ["zebra/", "zoo.json"]
    assert complete_topology(f"{tmp_path}/zo") == [f"{tmp_path}/zoo.json"]
    assert complete_topology("nowhere/x") == []
    assert complete_collective("reduce-") == ["reduce_scatter"]
    assert complete_planner("") == list(PLANNERS)


def test_importing_the_completions_loads_nothing_heavy() -> None:
    """Completions import none of numba, scipy, pandas and torch."""
    program = (
        "import sys; from collopt.cli.terminal import parameters as p; "
        "p.complete_topology('m'); p.complete_planner('m'); "
        "print([name for name in ('numba', 'scipy', 'pandas', 'torch') if name in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=100)
    assert result.stdout == "[]\n"


def test_traces_speak_through_the_standard_log(caplog: pytest.LogCaptureFixture) -> None:
    """Stages and notes are records of the logger `collopt`."""
    with caplog.at_level(logging.DEBUG, logger="collopt"):
        trace = Trace()
        with trace.stage("thinking"):
            trace.note("found_trees", 3)
    assert [record.getMessage().partition(":")[0] for record in caplog.records] == [
        "thinking ...",
        "found trees",
        "thinking",
    ]


def test_options_and_their_table_are_the_same() -> None:
    """Each parameter of a command or group has its line, and no line is of none."""
    table = tomllib.loads((Path(parameters.__file__).parent / "options.toml").read_text(encoding="utf-8"))
    shared = table.pop("shared")
    groups = {group.__name__: set(group._fields) for group in GROUPS}
    owners = groups | {
        command.__name__: {
            each.name
            for each in inspect.signature(command, eval_str=True).parameters.values()
            if each.annotation not in GROUPS
        }
        for command in COMMANDS
    }
    for owner, names in owners.items():
        described = table.pop(owner, {}).keys() - {"panel"}
        assert described <= names <= described | shared.keys(), owner
    assert not table
    assert shared.keys() == {"threads", "seed"} | (shared.keys() & set().union(*owners.values()))
