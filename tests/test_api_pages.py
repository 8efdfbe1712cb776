"""Holds docs/reference/api/ against the public names, so that none is forgotten or stays when it goes."""

from __future__ import annotations

import importlib
import re
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import collopt

FOLDER = Path(__file__).parents[1] / "docs" / "reference" / "api"
ENTRY = re.compile(
    r"^::: (?P<path>\S+)(?:\n    options: \{heading: (?P<heading>[\w.]+), toc_label: (?P<label>\w+)\})?$", re.MULTILINE
)
ROOMS = ("topologies", "schedules", "formulations", "solvers", "planners", "runtime", "report", "errors")
WITHOUT_A_ROOM = {"collopt.__version__"}
"""Named in words on the first page."""
BESIDE_ROOMS = (
    "collopt.runtime.backend",
    "collopt.runtime.msccl.export",
    "collopt.runtime.mscclpp.export",
    "collopt.runtime.nccl.graph",
    "collopt.runtime.nccl.tuner",
    "collopt.runtime.simulation.chakra_export",
)
"""Modules with names that people need and that are not those of a room: a backend, and options of exporters."""


class Entry(NamedTuple):
    """One ``:::`` block: where the docstring is, and what the heading says that people type."""

    path: str
    heading: str
    page: str


def entries() -> list[Entry]:
    """Every ``:::`` block of the reference."""
    found = []
    for page in sorted(FOLDER.glob("*.md")):
        text = page.read_text(encoding="utf-8")
        matches = list(ENTRY.finditer(text))
        assert len(matches) == len(re.findall(r"^:::", text, re.MULTILINE)), f"{page.name} has a block of another form"
        found += [Entry(match["path"], match["heading"] or match["path"], page.name) for match in matches]
    return found


def public_names() -> set[str]:
    """What people type: names of `collopt` itself, then those of its rooms, then those of modules that are public."""
    names = {f"collopt.{name}" for name in collopt.__all__ if not isinstance(getattr(collopt, name), ModuleType)}
    for room_name in ROOMS:
        room = importlib.import_module(f"collopt.{room_name}")
        for name in room.__all__:
            thing = getattr(room, name)
            if isinstance(thing, ModuleType):
                names |= {f"{thing.__name__}.{inner}" for inner in thing.__all__}
            elif f"collopt.{name}" not in names:
                names.add(f"collopt.{room_name}.{name}")
    return names - WITHOUT_A_ROOM


def resolved(path: str) -> Any:
    """What a dotted path means to Python, where modules come before names of their package."""
    parts = path.split(".")
    for length in range(len(parts), 0, -1):
        try:
            thing: Any = importlib.import_module(".".join(parts[:length]))
        except ModuleNotFoundError:
            continue
        for name in parts[length:]:
            thing = getattr(thing, name)
        return thing
    raise AssertionError(f"{path} leads nowhere")


def typed(heading: str) -> Any:
    """What a heading means to someone who types it: names of a package hide its modules."""
    thing: Any = collopt
    for name in heading.split(".")[1:]:
        thing = getattr(thing, name) if hasattr(thing, name) else importlib.import_module(f"{thing.__name__}.{name}")
    return thing


def test_every_public_name_has_one_place_in_the_reference() -> None:
    """No name of an `__all__` is missing, and none is described twice."""
    listed = Counter(entry.heading for entry in entries())
    assert sorted(public_names() - set(listed)) == []
    assert [name for name, times in listed.items() if times > 1] == []


def test_the_reference_has_no_names_that_are_not_public() -> None:
    """What is described is in the `__all__` of a room, or of a module that is public on purpose."""
    beside = {f"{name}.{inner}" for name in BESIDE_ROOMS for inner in importlib.import_module(name).__all__}
    assert sorted({entry.heading for entry in entries()} - public_names() - beside) == []


def test_entries_describe_what_their_headings_name() -> None:
    """The path that a docstring is taken from and the name that people type are the same thing, and no module."""
    found = entries()
    assert [entry.heading for entry in found if resolved(entry.path) is not typed(entry.heading)] == []
    assert [entry.heading for entry in found if isinstance(resolved(entry.path), ModuleType)] == []


def test_first_page_of_the_reference_lists_all_others() -> None:
    """Every page is linked from the table on the first one."""
    linked = set(re.findall(r"\]\(([\w-]+\.md)\)", (FOLDER / "index.md").read_text(encoding="utf-8")))
    assert linked == {page.name for page in FOLDER.glob("*.md")} - {"index.md"}
    assert all(name in (FOLDER / "index.md").read_text(encoding="utf-8") for name in WITHOUT_A_ROOM)
