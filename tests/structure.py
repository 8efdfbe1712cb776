"""The package's structure as its source states it: modules, folders and every import between them.

Imports inside functions and under ``TYPE_CHECKING`` count like all others.  A name that a package re-exports is
followed to the module that defines it, so an import of ``..schedules`` is one of, say, ``schedules/bounds/bound.py``.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from functools import cache
from pathlib import Path

import networkx as nx

ROOT = Path(__file__).parents[1]
PACKAGE = "collopt"
LAYERS = (
    ("errors",),
    ("support",),
    ("topologies",),
    ("schedules",),
    ("formulations", "solvers"),
    ("planners",),
    ("runtime",),
    ("report",),
    ("cli",),
)
"""From the bottom up; a layer imports from those before it, and layers that share a row not from each other."""


@cache
def modules() -> Mapping[str, Path]:
    """Dotted name and path of every module of the package, packages included."""
    names = [name for row in LAYERS for name in row]
    paths = [ROOT / "__init__.py", ROOT / "__main__.py"]
    paths += [path for name in names for path in sorted((ROOT / name).rglob("*.py"))]
    paths += [ROOT / f"{name}.py" for name in names if (ROOT / f"{name}.py").is_file()]
    return {_dotted(path): path for path in paths}


def folder_of(module: str) -> str:
    """The package that a module lies in; a package is its own."""
    return module if modules()[module].name == "__init__.py" else module.rpartition(".")[0]


def layer_of(module: str) -> int | None:
    """Position of a module's layer in `LAYERS`, or None for the root's own modules."""
    parts = module.split(".")
    rows = (row for row, names in enumerate(LAYERS) if len(parts) > 1 and parts[1] in names)
    return next(rows, None)


@cache
def imports() -> Mapping[str, AbstractSet[str]]:
    """For every module, the modules that it imports, re-exported names followed to where they are defined."""
    return {module: set(_imported(module)) - {module} for module in modules()}


def circles(graph: Mapping[str, AbstractSet[str]]) -> list[list[str]]:
    """Groups of nodes each of which reaches all others of its group."""
    components = nx.strongly_connected_components(nx.DiGraph({node: list(ends) for node, ends in graph.items()}))
    return sorted(sorted(group) for group in components if len(group) > 1)


def folder_imports() -> Mapping[str, AbstractSet[str]]:
    """For every folder, those that its modules import from; what a package re-exports is no import of its folder's."""
    found: dict[str, set[str]] = {folder_of(module): set() for module in modules() if layer_of(module)}
    for module, ends in imports().items():
        if layer_of(module) and modules()[module].name != "__init__.py":
            found[folder_of(module)] |= {folder_of(end) for end in ends if layer_of(end)} - {folder_of(module)}
    return found


def exports(package: str) -> tuple[str, ...]:
    """The names in the ``__all__`` of a module or package."""
    for node in _tree(package).body:
        if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == "__all__" for t in node.targets):
            return tuple(ast.literal_eval(node.value))
    return ()


def code_lines(module: str) -> int:
    """Lines of a module that are neither blank, comment nor docstring."""
    text = modules()[module].read_text(encoding="utf-8")
    taken: set[int] = set()
    for node in ast.walk(_tree(module)):
        body = getattr(node, "body", None)
        for entry in body if isinstance(body, list) else ():
            if (
                isinstance(entry, ast.Expr)
                and isinstance(entry.value, ast.Constant)
                and isinstance(entry.value.value, str)
            ):
                taken |= set(range(entry.lineno, (entry.end_lineno or entry.lineno) + 1))
    lines = enumerate(text.splitlines(), 1)
    return sum(
        bool(line.strip()) and not line.lstrip().startswith("#") and number not in taken for number, line in lines
    )


def _dotted(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join((PACKAGE, *(parts[:-1] if parts[-1] == "__init__" else parts)))


@cache
def _tree(module: str) -> ast.Module:
    return ast.parse(modules()[module].read_text(encoding="utf-8"))


def _imported(module: str) -> Iterator[str]:
    for node in ast.walk(_tree(module)):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = folder_of(module).split(".")
            target = ".".join(base[: len(base) - node.level + 1] + (node.module or "").split("."))
            yield from (_defined(target.rstrip("."), alias.name) for alias in node.names)


def _defined(target: str, name: str) -> str:
    """The module that ``from target import name`` gets its name from."""
    if modules()[target].name != "__init__.py":
        return target
    if f"{target}.{name}" in modules() and name not in _reexported(target):
        return f"{target}.{name}"
    return _reexported(target).get(name, target)


@cache
def _reexported(package: str) -> Mapping[str, str]:
    """Where the names come from that a package imports for its users."""
    found = {}
    for node in ast.walk(_tree(package)):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = package.split(".")[: len(package.split(".")) - node.level + 1]
            target = ".".join([*base, *filter(None, [node.module])])
            found |= {alias.asname or alias.name: _defined(target, alias.name) for alias in node.names if node.module}
    return found
