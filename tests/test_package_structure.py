"""Holds the package to its layout: small folders, imports one way, documented exports."""

from __future__ import annotations

import ast
import gc
import importlib
import inspect
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

import collopt
from docstring_sections import docstring_of, is_function, missing_sections
from structure import COLLOPT, LAYERS, PACKAGE, ROOT, Structure, circles

MODULE_LINES = 600
LEVELS = 2
"""Folders below the root, one within the other: planners/trees."""
FOLDER_MODULES = 4, 20
ALONE = "checker"
"""The folder of one module, which stands alone; tests/test_plan_checker.py limits its length."""
CELL_WORDS = 25

# The budget of the product: 64,000 lines are the aim.  These figures only shrink; each change lowers those that it can.
PRODUCT_LINES, PRODUCT_MODULES, PRODUCT_FOLDERS = 85_735, 372, 48
REFUSED_NAMES_LEFT: dict[str, int] = {}
WITH_EXAMPLES = 0.5
"""Share of the exported functions whose docstring has a doctest."""
PUBLIC = ("topologies", "schedules", "formulations", "solvers", "planners", "runtime", "runtime.backend", "report")


@pytest.fixture(scope="module", autouse=True)
def _forget_trees() -> Iterator[None]:
    """Millions of nodes would slow down all later tests of this process."""
    yield
    for name in ("trees", "nodes"):
        vars(COLLOPT).pop(name, None)
    gc.unfreeze()


def exported() -> Iterator[tuple[str, object]]:
    """What `collopt` and its layers export, and the modules among it, by the name that people type."""
    homes = [collopt, *(importlib.import_module(f"collopt.{name}") for name in PUBLIC)]
    for home in homes:
        for name in home.__all__:
            thing = getattr(home, name)
            if not isinstance(thing, ModuleType):
                yield f"{home.__name__}.{name}", thing
            elif home is not collopt:
                yield from ((f"{thing.__name__}.{inner}", getattr(thing, inner)) for inner in thing.__all__)


def exported_functions() -> dict[str, object]:
    """Exported functions by their first name, each once."""
    found = {thing: name for name, thing in reversed(list(exported())) if is_function(thing)}
    return {name: thing for thing, name in found.items()}


def package(root: Path, **sources: str) -> Structure:
    """A package of modules by dotted name; every folder gets an ``__init__.py`` unless it is given one."""
    for name, source in sources.items():
        path = root / f"{name.replace('.', '/')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source, encoding="utf-8")
    for folder in {root, *(path.parent for path in root.rglob("*.py"))}:
        (folder / "__init__.py").touch()
    return Structure(root)


def test_the_product_fits_its_budget() -> None:
    """Lines, modules and folders without tests, documentation, examples and benchmarks."""
    lines = sum(path.read_text(encoding="utf-8").count("\n") for path in COLLOPT.modules.values())
    assert lines <= PRODUCT_LINES
    assert len(COLLOPT.modules) <= PRODUCT_MODULES
    assert len(COLLOPT.folder_sizes()) - 1 <= PRODUCT_FOLDERS


def test_a_module_is_read_in_one_sitting() -> None:
    """At most 600 lines, and more than a docstring."""
    lines = {name: path.read_text(encoding="utf-8").count("\n") for name, path in COLLOPT.modules.items()}
    long = {name for name, count in lines.items() if count > MODULE_LINES}
    assert long <= {f"{PACKAGE}.{ALONE}.collopt_check"}
    assert COLLOPT.bare_modules() == []


def test_a_folder_holds_one_subject() -> None:
    """Four to twenty modules, ``__init__.py`` not counted, two levels below the root at most."""
    sizes = {folder: size for folder, size in COLLOPT.folder_sizes().items() if folder != "."}
    least, most = FOLDER_MODULES
    faults = {
        folder: modules
        for folder, (modules, packages) in sizes.items()
        if folder.count("/") >= LEVELS or modules > most or (modules < least and not packages and folder != ALONE)
    }
    assert faults == {}


def test_no_function_dispatches_on_types() -> None:
    """A schedule or witness has a method instead."""
    assert COLLOPT.dispatching_modules() == []


@pytest.mark.parametrize("layer", [name for row in LAYERS for name in row])
def test_names_are_nouns_and_verbs(layer: str) -> None:
    """Variables, parameters and functions say what they are."""
    places = COLLOPT.refused_names.get(layer, [])
    assert len(places) <= REFUSED_NAMES_LEFT.get(layer, 0), places


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("found = 1", 1),
        ("for _given, (i, each) in x: pass", 2),
        ("def made(most, *, least=0, **rest): pass", 4),
        ("class A:\n    whole: int\n    async def held(self): pass", 2),
        ("from x import y as wanted, known", 1),
        ("match x:\n    case [1, *rest] | {'a': 2, 'b': rest}: pass", 2),
        ("try: pass\nexcept E as told: pass", 1),
        ("best = found + known.given; known_names = lambda given_plan: 0", 0),
    ],
)
def test_finds_names_that_name_nothing(source: str, names: int, tmp_path: Path) -> None:
    """Refused names are found where they are bound, and not where they are read."""
    places = package(tmp_path, **{"support.one": source}).refused_names
    assert len(places.get("support", [])) == names


def test_table_cells_are_short() -> None:
    """At most 25 words in a cell of the documentation, and in the help of an option."""
    help_texts = tomllib.loads((ROOT / "cli/terminal/options.toml").read_text(encoding="utf-8")).values()
    cells = {
        "cli/terminal/options.toml": [
            about["help"] for group in help_texts for about in group.values() if isinstance(about, dict)
        ]
    }
    for path in [*(ROOT / "docs").rglob("*.md"), *ROOT.glob("*.md")]:
        text = re.sub(r"(?ms)^```.*?^```", "", path.read_text(encoding="utf-8"))
        rows = (line.strip().strip("|") for line in text.splitlines() if line.startswith("|"))
        # The address of a link is no word of its cell.
        cells[str(path.relative_to(ROOT))] = [
            re.sub(r"\]\([^)]*\)", "]", cell) for row in rows for cell in row.split(" | ")
        ]
    wide = {page: [cell for cell in texts if len(cell.split()) > CELL_WORDS] for page, texts in cells.items()}
    assert {page: found for page, found in wide.items() if found} == {}


def test_no_module_imports_itself_through_others(tmp_path: Path) -> None:
    """Imports inside functions and for type checkers count too."""
    assert circles(COLLOPT.imports) == []
    found = package(tmp_path, **{"solvers.one": "from .two import g", "solvers.two": "def g():\n    from . import one"})
    assert circles(found.imports) == [["collopt.solvers.one", "collopt.solvers.two"]]


@pytest.mark.parametrize("own", ["solvers.a.one", "solvers.a.__init__"])
def test_no_folder_imports_itself_through_others(own: str, tmp_path: Path) -> None:
    """Folders of a layer have an order, which imports of an ``__init__.py`` from outside count for."""
    assert circles(COLLOPT.folder_imports()) == []
    sources = {
        own: "from ..b.one import f",
        "solvers.a.two": "",
        "solvers.b.one": "",
        "solvers.b.two": "from ..a import two",
    }
    assert circles(package(tmp_path, **sources).folder_imports()) == [["collopt.solvers.a", "collopt.solvers.b"]]


SPELLING = {
    "checker.collopt_check": 9,  # what the format's page says of each
    "planners.plans.schema": 1,  # a kind of schedules
    "schedules.collective": 10,  # the collectives themselves
    "schedules.schedule": 4,  # kinds of schedules in plan files
    "schedules.steps.flow": 2,  # texts about flows and steps
    "schedules.steps.step_schedule": 2,
    "planners.direct_connect.candidate": 2,
    "planners.direct_connect.find": 2,  # the name of a flag, and of a stage
    "runtime.msccl.limits": 1,  # the name that MSCCL gives it
    "cli.commands.find": 3,  # headers of columns
}


def test_no_module_tells_collectives_apart_by_name(tmp_path: Path) -> None:
    """A `Collective` says what it differs in, and is looked up once where a user's name comes in."""
    assert COLLOPT.spelled_collectives() == SPELLING
    told = "def f(a, collective='allreduce'):\n    'allreduce'\n    return a == 'all_reduce' or a in {'All-To-All': 1}"
    assert package(tmp_path, **{"support.one": told}).spelled_collectives() == {"support.one": 2}


def test_exported_names_have_numpydoc_sections() -> None:
    """Docstrings document parameters and fields, and results beyond their annotation."""
    documented = {name: thing for name, thing in exported() if is_function(thing) or inspect.isclass(thing)}
    assert [name for name, thing in documented.items() if not docstring_of(thing)] == []
    assert {name: missing for name, thing in documented.items() if (missing := missing_sections(thing))} == {}


def test_half_of_the_exported_functions_show_an_example() -> None:
    """Half of the exported functions have a doctest."""
    functions = exported_functions()
    shown = [name for name, thing in functions.items() if ">>> " in docstring_of(thing)]
    assert len(shown) >= WITH_EXAMPLES * len(functions), sorted(set(functions) - set(shown))


def test_no_exported_function_has_the_name_of_its_module() -> None:
    """A package's attribute would be the one or the other, depending on what was imported first."""
    clashes = [
        f"{package}.{name}"
        for package in COLLOPT.modules
        if COLLOPT.is_package(package)
        for name in functions_bound_in(package)
        if f"{package}.{name}" in COLLOPT.modules
    ]
    assert clashes == []


def functions_bound_in(package: str) -> list[str]:
    """Names that a package takes from its modules, modules themselves left out."""
    nodes = COLLOPT.nodes[package]
    taken = [node for node in nodes if isinstance(node, ast.ImportFrom) and node.level and node.module]
    return [alias.asname or alias.name for node in taken for alias in node.names]
