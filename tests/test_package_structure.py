"""Holds the package to its layout: small folders, imports one way, documented exports."""

from __future__ import annotations

import ast
import importlib
import inspect
from collections import Counter
from collections.abc import Iterator
from types import ModuleType

import collopt
from structure import circles, code_lines, folder_imports, folder_of, imports, layer_of, modules

MODULES_IN_A_FOLDER = 12
CODE_LINES = 300
WITH_EXAMPLES = 0.5
"""Share of the exported functions whose docstring has a doctest."""
PACKAGES = ("topologies", "schedules", "formulations", "solvers", "planners", "runtime", "report")


def exported() -> Iterator[tuple[str, object]]:
    """What `collopt` and its layers export, and the modules among it, by the name that people type."""
    homes = [collopt, *(importlib.import_module(f"collopt.{name}") for name in PACKAGES)]
    for home in homes:
        for name in home.__all__:
            thing = getattr(home, name)
            if not isinstance(thing, ModuleType):
                yield f"{home.__name__}.{name}", thing
            elif home is not collopt:
                yield from ((f"{thing.__name__}.{inner}", getattr(thing, inner)) for inner in thing.__all__)


def exported_functions() -> dict[str, object]:
    """Exported functions by their first name, each once."""
    found = {thing: name for name, thing in reversed(list(exported())) if inspect.isfunction(thing)}
    return {name: thing for thing, name in found.items()}


def test_no_folder_holds_more_modules_than_a_reader_can_take_in() -> None:
    """Twelve, `__init__.py` not counted."""
    count = Counter(folder_of(name) for name, path in modules().items() if path.name != "__init__.py")
    assert {folder: number for folder, number in count.items() if number > MODULES_IN_A_FOLDER} == {}


def test_no_module_imports_itself_through_others() -> None:
    """Imports inside functions and for type checkers count too."""
    assert circles(imports()) == []


def test_no_folder_imports_itself_through_others() -> None:
    """So that the folders of a layer have an order."""
    assert circles(folder_imports()) == []


def test_no_layer_imports_from_a_layer_above_it() -> None:
    """Nor from one beside it."""
    upward = [
        f"{name} -> {end}"
        for name, ends in imports().items()
        for end in ends
        if (here := layer_of(name)) is not None and (there := layer_of(end)) is not None
        if there > here or (there == here and name.split(".")[1] != end.split(".")[1])
    ]
    assert upward == []


def test_no_module_has_more_code_than_a_sitting_takes() -> None:
    """300 lines that are neither blank, comment nor docstring."""
    assert {name: lines for name in modules() if (lines := code_lines(name)) > CODE_LINES} == {}


def missing_sections(thing: object) -> list[str]:
    """The numpydoc sections that the docstring of a function or class should have and has not."""
    text = inspect.getdoc(thing) or ""
    if inspect.isclass(thing):
        # Words for members of an enumeration and the message of an error stand beside them.
        return [] if "\n---" in text or not public_fields(thing) else ["Attributes"]
    if not inspect.isfunction(thing):
        return []
    signature = inspect.signature(thing)
    wanted = ["Parameters"] if signature.parameters else []
    if signature.return_annotation not in ("None", "Iterator[None]", None, inspect.Signature.empty):
        wanted.append("Yields" if inspect.isgeneratorfunction(inspect.unwrap(thing)) else "Returns")
    return [title for title in wanted if f"{title}\n{'-' * len(title)}" not in text]


def public_fields(thing: type) -> list[str]:
    """Annotated names of a class that do not begin with an underscore."""
    return [name for name in vars(thing).get("__annotations__", {}) if not name.startswith("_")]


def test_exported_names_have_numpydoc_sections() -> None:
    """What goes in, what comes out, and the fields of records."""
    documented = {name: thing for name, thing in exported() if inspect.isfunction(thing) or inspect.isclass(thing)}
    assert [name for name, thing in documented.items() if not inspect.getdoc(thing)] == []
    assert {name: missing for name, thing in documented.items() if (missing := missing_sections(thing))} == {}


def test_half_of_the_exported_functions_show_an_example() -> None:
    """A doctest, which the tests run."""
    functions = exported_functions()
    shown = [name for name, thing in functions.items() if ">>> " in (inspect.getdoc(thing) or "")]
    assert len(shown) >= WITH_EXAMPLES * len(functions), sorted(set(functions) - set(shown))


def test_no_exported_function_has_the_name_of_its_module() -> None:
    """A package's attribute would be the one or the other, depending on what was imported first."""
    clashes = [
        f"{package}.{name}"
        for package, path in modules().items()
        if path.name == "__init__.py"
        for name in functions_bound_in(package)
        if f"{package}.{name}" in modules()
    ]
    assert clashes == []


def functions_bound_in(package: str) -> list[str]:
    """Names that a package takes from its modules, modules themselves left out."""
    tree = ast.parse(modules()[package].read_text(encoding="utf-8"))
    taken = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.level and node.module]
    return [alias.asname or alias.name for node in taken for alias in node.names]
