"""The checker of plan files that imports nothing of collopt, the conformance folder, and the schema of the format."""

from __future__ import annotations

import ast
import copy
import io
import json
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import redirect_stdout
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

import collopt
from cli_calls import Cli
from collopt.checker import collopt_check
from collopt.errors import ColloptError
from collopt.planners.plans.plan import document_text
from collopt.planners.plans.schema import plan_schema

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "checker" / "conformance"
SOURCE = ROOT / "checker" / "collopt_check.py"
INDEX = json.loads((FOLDER / "index.json").read_text(encoding="utf-8"))
STEPS = ["file", "topology", "bound", "schedule", "result"]
CODE_LINES = 577
"""Lines of code of the checker, which only shrink."""


def checked(path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[int, list[str]]:
    """Status and lines of the checker."""
    monkeypatch.setattr(sys, "argv", ["collopt_check.py", str(path)])
    output = io.StringIO()
    with redirect_stdout(output):
        status = collopt_check.main()
    lines = output.getvalue().splitlines()
    assert [line.split()[0] for line in lines] == STEPS
    return status, lines


def is_verified(path: Path) -> bool:
    """Whether collopt loads the plan."""
    try:
        collopt.load_plan(path)
    except ColloptError:
        return False
    return True


def forged(forgery: dict[str, Any]) -> dict[str, Any]:
    """The plan that the edits of a forgery make of a right one."""
    document: dict[str, Any] = json.loads((FOLDER / forgery["of"]).read_text(encoding="utf-8"))
    for way, *value in forgery["edits"]:
        *outer, last = way
        place: Any = document
        for key in outer:
            place = place[key]
        if value:
            place[last] = copy.deepcopy(value[0])
        else:
            del place[last]
    return document


@pytest.mark.parametrize("text", ["\ud800", "x\nresult    right: 1 GB/s", "\x1b[2J"])
def test_text_of_a_plan_stays_in_its_line(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan that names no collective writes no line of its own, nothing that terminals obey, and no lone surrogate."""
    document = forged({"of": "allgather-ring.json", "edits": [[["collective"], text]]})
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(document), encoding="utf-8")
    status, lines = checked(path, monkeypatch)
    assert status == 1
    assert lines[0].isascii()
    assert lines[0].isprintable()


def test_ranks_of_items_that_stay_have_to_be_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An item that nobody needs names ranks of the network too; both refuse it otherwise."""
    document = json.loads((FOLDER / "demands.json").read_text(encoding="utf-8"))
    items = document["schedule"]["items"]
    place = next(number for number, item in enumerate(items) if {*item["destinations"]} <= {*item["sources"]})
    items[place]["sources"].append("nowhere")
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(document), encoding="utf-8")
    assert checked(path, monkeypatch)[0] == 1
    assert not is_verified(path)


def test_the_checker_stands_alone() -> None:
    """It imports the standard library of Python 3.9 alone, and stays short."""
    text = SOURCE.read_text(encoding="utf-8")
    tree = ast.parse(text, feature_version=(3, 9))
    names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    names |= {str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {name.partition(".")[0] for name in names} <= sys.stdlib_module_names | {"__future__"}
    documented = [node for node in ast.walk(tree) if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)]
    notes = {line for node in documented if ast.get_docstring(node) for line in docstring_lines(node)}
    code = [
        line for number, line in enumerate(text.splitlines(), 1) if number not in notes and line.split("#")[0].strip()
    ]
    assert len(code) <= CODE_LINES


def docstring_lines(node: ast.Module | ast.ClassDef | ast.FunctionDef) -> Iterator[int]:
    """Numbers of the lines of a docstring."""
    first = node.body[0]
    assert first.end_lineno is not None
    yield from range(first.lineno, first.end_lineno + 1)


def test_the_folder_has_all_kinds_and_all_witnesses() -> None:
    """Right plans show everything that a checker has to know, and wrong ones lie besides them."""
    files = {plan["file"] for plan in INDEX["plans"]}
    assert files | {"index.json"} == {path.name for path in FOLDER.iterdir()}
    right = [json.loads((FOLDER / plan["file"]).read_text("utf-8")) for plan in INDEX["plans"] if plan["right"]]
    assert len(right) >= 40
    assert len(files) - len(right) >= 20
    kinds = {half.get("kind") for plan in right for half in (plan["schedule"], plan["schedule"].get("reduce", {}))}
    assert kinds - {None} == set(collopt.schedules.SCHEDULE_KINDS)
    bounds = [plan[name] for plan in right for name in ("bound", "scoped_bound") if name in plan]
    witnesses = {name for bound in bounds for name in bound} - {"inverse_rate", "weights"}
    assert witnesses == set(collopt.schedules.bounds.bound.WITNESS_KINDS)


@pytest.mark.parametrize("entry", INDEX["plans"], ids=lambda entry: entry["file"])
def test_plans_of_the_folder(entry: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Both find right what is right, with its rate and gap, and wrong what is wrong, in its step."""
    path = FOLDER / entry["file"]
    status, lines = checked(path, monkeypatch)
    assert (status == 0) == entry["right"] == is_verified(path), lines
    if entry["right"]:
        plan = collopt.load_plan(path)
        assert (plan.algbw, plan.gap) == (Fraction(entry["algbw"]), Fraction(entry["gap"]))
        assert f"right: {entry['algbw']} GB/s" in lines[-1]
        assert lines[-1].endswith(f"gap {entry['gap']}")
    else:
        assert [line.split()[0] for line in lines if "WRONG" in line] == [entry["step"]]


@pytest.mark.parametrize("name", sorted({forgery["of"] for forgery in INDEX["forgeries"]}))
def test_forgeries_of_the_folder(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both refuse each forgery of a right plan; the checker names the step."""
    for forgery in INDEX["forgeries"]:
        if forgery["of"] == name:
            path = tmp_path / "forged.json"
            path.write_text(document_text(forged(forgery)), encoding="utf-8")
            status, lines = checked(path, monkeypatch)
            assert status == 1, forgery
            assert [line.split()[0] for line in lines if "WRONG" in line] == [forgery["step"]], forgery
            assert not is_verified(path), forgery


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "null", "<xml/>", '{"format": "collopt-plan", "format": "collopt-plan"}', "[" * 10**5, "\xff"],
)
def test_files_that_are_no_plans(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a file holds, the first line says that it is wrong, and nothing else is checked."""
    path = tmp_path / "plan.json"
    path.write_bytes(text.encode("latin-1"))
    status, lines = checked(path, monkeypatch)
    assert status == 1
    assert "WRONG" in lines[0]
    assert all(line.endswith("not checked") for line in lines[1:])


def test_the_checker_beside_a_plan(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command line copies it, and it runs where there is no collopt."""
    monkeypatch.chdir(tmp_path)
    request = ("plan", "ring", "--nodes", 3, "allgather", "--checker")
    assert cli(*request, "-o", "plan.json").status == 0
    assert (tmp_path / "collopt_check.py").read_bytes() == SOURCE.read_bytes()
    arguments = [sys.executable, "-I", "-S", "collopt_check.py"]
    right = subprocess.run([*arguments, "plan.json"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (right.returncode, right.stderr) == (0, "")
    assert [line.split()[0] for line in right.stdout.splitlines()] == STEPS
    missing = subprocess.run([*arguments, "other.json"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (missing.returncode, missing.stderr) == (1, "")
    bare = subprocess.run(arguments, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (bare.returncode, bare.stdout, bare.stderr) == (1, "", "usage: collopt_check.py PLAN.json\n")
    (tmp_path / "out").mkdir()
    assert cli("export", "plan.json", "--format", "msccl-xml", "-o", "out/plan.xml", "--checker").status == 0
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"plan.xml", "plan.json", "collopt_check.py"}
    refused = cli(*request)
    assert refused.status == 2
    assert "give --output too" in refused.err


@pytest.mark.parametrize("planner", ["auto", "bruck", "milp", "nccl", "pat", "ring", "symmetric", "torus-2-phase"])
def test_checker_and_verify_agree_on_plans(planner: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Plans are right for both, and with any one load changed wrong for both."""
    network = collopt.topologies.torus(2, 2, bandwidth="25/2", latency="1/3")
    for collective in ("allgather", "reduce_scatter", "allreduce"):
        plan = collopt.plan(network, collective, planner=planner)
        path = tmp_path / "plan.json"
        plan.save(path)
        status, lines = checked(path, monkeypatch)
        assert status == 0, lines
        document = plan.to_json()
        row = document["link_loads"]
        row = row[-1] if isinstance(row[0], list) else row
        row[-1] += 1
        path.write_text(document_text(document), encoding="utf-8")
        assert checked(path, monkeypatch)[0] == 1
        assert not is_verified(path)


def test_the_schema_is_that_of_the_readers() -> None:
    """The file is what the readers' fields give, and every right plan has this form; else write the file again."""
    schema = plan_schema()
    assert (ROOT / "checker/plan.schema.json").read_text(encoding="utf-8") == json.dumps(schema, indent=1) + "\n"
    assert (ROOT / "docs/reference/plan.schema.json").read_text("utf-8") == json.dumps(schema, indent=1) + "\n"
    jsonschema = pytest.importorskip("jsonschema")
    validator = jsonschema.Draft202012Validator(schema)
    for entry in INDEX["plans"]:
        if entry["right"]:
            validator.validate(json.loads((FOLDER / entry["file"]).read_text(encoding="utf-8")))
    document = json.loads((FOLDER / INDEX["plans"][0]["file"]).read_text(encoding="utf-8"))
    for change in ({"inverse_rate": "0"}, {"proof": 1}, {"schedule": {"kind": "forest"}}, {"version": 9}):
        assert not validator.is_valid(document | change)


def test_an_installed_package_has_the_folder() -> None:
    """The files of the package are those that pyproject.toml lists."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert settings["project"]["scripts"]["collopt-check"] == "collopt.checker.collopt_check:main"
    patterns = settings["tool"]["setuptools"]["package-data"]["collopt.checker"]
    listed = {path for pattern in patterns for path in (ROOT / "checker").glob(pattern)}
    others = {path for path in (ROOT / "checker").rglob("*") if path.is_file() and path.suffix not in {".py", ".pyc"}}
    assert listed == others
