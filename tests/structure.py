"""The package's structure as its source states it: modules, folders and every import between them.

Imports inside functions and under ``TYPE_CHECKING`` count like all others.  A name that a package re-exports is
followed to the module that defines it, so an import of ``..schedules`` is one of, say, ``schedules/bounds/bound.py``.
Only relative imports are followed; import-linter refuses others, and those from a layer above.
"""

from __future__ import annotations

import ast
import gc
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from functools import cached_property
from pathlib import Path

import networkx as nx

ROOT = Path(__file__).parents[1]
PACKAGE = "collopt"
LAYERS = (
    ("checker", "errors"),
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
COLLECTIVES = frozenset({"allgather", "reducescatter", "allreduce", "alltoall", "alltoallv"})
REFUSED_NAMES = frozenset(
    re.findall(
        r"\w+",
        """
    able alike along apart asked beside beyond built carried chosen each few found further given held known least made
    many meant more most needed others possible rest said same seen several such sure taken those told tried useful
    wanted whole written wrong
    """,
    )
)
"""Names that do not say what they name, where a noun does: plan, neighbor, candidate, reached_nodes, limit, row."""


class Structure:
    """The modules of a package whose root lies in a folder."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._exports: dict[str, Mapping[str, str]] = {}

    @cached_property
    def modules(self) -> Mapping[str, Path]:
        """Dotted name and path of every module of the package, packages included."""
        paths = sorted(self.root.glob("*.py"))
        paths += [path for row in LAYERS for name in row for path in sorted((self.root / name).rglob("*.py"))]
        return {self._dotted(path): path for path in paths}

    @cached_property
    def trees(self) -> Mapping[str, ast.Module]:
        """Every module as it is parsed."""
        gc.disable()  # Looking for garbage among so many nodes takes three times as long as parsing.
        try:
            return {module: ast.parse(path.read_text(encoding="utf-8")) for module, path in self.modules.items()}
        finally:
            gc.freeze()
            gc.enable()

    @cached_property
    def nodes(self) -> Mapping[str, list[ast.AST]]:
        """All nodes of every module."""
        return {module: list(ast.walk(tree)) for module, tree in self.trees.items()}

    @cached_property
    def imports(self) -> Mapping[str, AbstractSet[str]]:
        """For every module, the modules that it imports, re-exported names followed to where they are defined."""
        return {module: set(self._imported(module)) - {module} for module in self.modules}

    def is_package(self, module: str) -> bool:
        """Whether a module is the ``__init__.py`` of a folder."""
        return self.modules[module].name == "__init__.py"

    def folder_of(self, module: str) -> str:
        """The package that a module lies in; a package is its own."""
        packaged = module not in self.modules or self.is_package(module)
        return module if packaged else module.rpartition(".")[0]

    def folder_sizes(self) -> Mapping[str, tuple[int, int]]:
        """Number of modules, ``__init__.py`` not counted, and of packages in each folder."""
        paths = self.modules.values()
        modules = Counter(path.parent for path in paths if path.name != "__init__.py")
        folders = {path.parent for path in paths}
        packages = Counter(folder.parent for folder in folders if folder != self.root)
        return {str(folder.relative_to(self.root)): (modules[folder], packages[folder]) for folder in folders}

    def folder_imports(self) -> Mapping[str, AbstractSet[str]]:
        """For every folder, those that its modules import from.

        What a package only re-exports from folders within its own is no import of its folder's.
        """
        found: dict[str, set[str]] = defaultdict(set)
        # Packages that modules of their own layer take something from which the package itself defines.
        imported = {end for module, ends in self.imports.items() for end in ends if _layer_of(module) == _layer_of(end)}
        for module, ends in self.imports.items():
            folder = self.folder_of(module)
            only_exports = self.is_package(module) and module not in imported
            within = f"{folder}." if only_exports else "\n"
            if folder != PACKAGE:
                found[folder] |= {self.folder_of(end) for end in ends if not end.startswith(within)} - {folder}
        return found

    @cached_property
    def refused_names(self) -> Mapping[str, list[str]]:
        """For every layer, where variables, parameters and functions have one of `REFUSED_NAMES`."""
        places: dict[str, list[str]] = defaultdict(list)
        for module, nodes in self.nodes.items():
            for node in nodes:
                places[f"{module}.".split(".")[1]] += [
                    f"{module}:{getattr(node, 'lineno', '?')} {name}"
                    for name in _names_bound_by(node)
                    if name.strip("_") in REFUSED_NAMES
                ]
        return {layer: names for layer, names in places.items() if names}

    def dispatching_modules(self) -> list[str]:
        """Modules that choose by the type of an argument, where a method does."""
        return sorted(
            module
            for module, nodes in self.nodes.items()
            if any(isinstance(node, ast.alias) and node.name.startswith("singledispatch") for node in nodes)
        )

    def bare_modules(self) -> list[str]:
        """Modules that hold no more than a docstring; packages may."""
        bodies = {module: tree.body for module, tree in self.trees.items() if not self.is_package(module)}
        return [module for module, body in bodies.items() if all(isinstance(node, ast.Expr) for node in body)]

    def spelled_collectives(self) -> Mapping[str, int]:
        """Number of strings in each module that spell a collective: only a `Collective` says what it differs in.

        Docstrings, ``__all__`` and default values of parameters are fine.
        """
        counts: Counter[str] = Counter()
        for module, nodes in self.nodes.items():
            fine = {inner for node in nodes for inner in _not_compared(node)}
            strings = (node for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str))
            spelled = (node for node in strings if re.sub(r"[\s_-]", "", str(node.value).casefold()) in COLLECTIVES)
            counts[module] = sum(node not in fine for node in spelled)
        return {module.removeprefix(f"{PACKAGE}."): count for module, count in counts.items() if count}

    def _dotted(self, path: Path) -> str:
        parts = path.relative_to(self.root).with_suffix("").parts
        return ".".join((PACKAGE, *(parts[:-1] if parts[-1] == "__init__" else parts)))

    def _imported(self, module: str) -> Iterator[str]:
        for node in self.nodes[module]:
            if isinstance(node, ast.ImportFrom) and node.level:
                yield from (self._defined(self._target(module, node), alias.name) for alias in node.names)

    def _target(self, module: str, node: ast.ImportFrom) -> str:
        base = self.folder_of(module).split(".")
        return ".".join([*base[: len(base) - node.level + 1], *filter(None, [node.module])])

    def _defined(self, target: str, name: str) -> str:
        """The module that ``from target import name`` gets its name from."""
        if target in self.modules and not self.is_package(target):
            return target
        if target not in self._exports:
            self._exports[target] = self._reexported(target)
        exported = self._exports[target]
        inner = f"{target}.{name}"
        return inner if inner in self.modules and name not in exported else exported.get(name, target)

    def _reexported(self, package: str) -> Mapping[str, str]:
        """Where the names come from that a package imports for its users."""
        found = {}
        for node in self.nodes.get(package, ()):
            if isinstance(node, ast.ImportFrom) and node.level and node.module:
                target = self._target(package, node)
                found |= {alias.asname or alias.name: self._defined(target, alias.name) for alias in node.names}
        return found


COLLOPT = Structure(ROOT)


def circles(graph: Mapping[str, AbstractSet[str]]) -> list[list[str]]:
    """Groups of nodes each of which reaches all others of its group."""
    components = nx.strongly_connected_components(nx.DiGraph({node: list(ends) for node, ends in graph.items()}))
    return sorted(sorted(group) for group in components if len(group) > 1)


def _names_bound_by(node: ast.AST) -> tuple[str, ...]:
    match node:
        case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name):
            return (name,)
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
            return (name,)
        case ast.alias(asname=str(name)) | ast.ExceptHandler(name=str(name)):
            return (name,)
        case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
            return (name,)
    return ()


def _not_compared(node: ast.AST) -> Iterator[ast.AST]:
    match node:
        case ast.Assign(targets=[ast.Name(id="__all__")]) | ast.AugAssign(target=ast.Name(id="__all__")):
            yield from ast.walk(node.value)
        case ast.arguments():
            yield from filter(None, [*node.defaults, *node.kw_defaults])
        case ast.Expr(value=value):
            yield value


def _layer_of(module: str) -> int:
    """Position of a module's layer in `LAYERS`; whatever is in none is above all."""
    part = [*module.split("."), ""][1]
    return next((row for row, names in enumerate(LAYERS) if part in names), len(LAYERS))
