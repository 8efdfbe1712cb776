"""``collopt topologies``: lists the topology builders and their options."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..arguments.parameters import UsageError
from ..terminal.output import Formats, bare_table, emit

if TYPE_CHECKING:
    from ...topologies import CatalogueEntry
    from ...topologies.builders import Parameter


def topologies(formats: Formats, name: str | None = None) -> None:
    """List the topologies of the catalogue, or the options of one."""
    from ...topologies.builders import catalogue, find_entry

    if name is not None:
        _refuse_path(name)
        entry = find_entry(name)
        if not formats.emit(lambda: _as_json(entry)["options"], lambda: _as_json(entry)):
            _print_options(entry)
        return
    options = [{"topology": each.name} | option for each in catalogue() for option in _as_json(each)["options"]]
    if not formats.emit(lambda: options, lambda: [_as_json(entry) for entry in catalogue()]):
        table = bare_table("name", "summary", "options")
        table.columns[0].no_wrap = True
        for each in catalogue():
            words = (option.name + ("" if option.required else f"={_in_words(option)}") for option in each.parameters)
            table.add_row(each.name, each.summary, " ".join(words))
        emit(table)


def _refuse_path(name: str) -> None:
    """Refuse a path by naming the command for files."""
    from ...support.file_kinds import kind_of
    from ...topologies.files import looks_like_path

    if looks_like_path(name):
        if not Path(name).exists():
            raise UsageError(f"{name} does not exist; check the path")
        if Path(name).is_dir():
            raise UsageError(f"{name} is a folder, not a topology of the catalogue; expected a name, or none for all")
        kind = kind_of(Path(name))
        advice = kind.command(name) if kind else f"`collopt import {name}` shows what it describes"
        raise UsageError(f"{name} is a file, not a topology of the catalogue; {advice}")


def _as_json(entry: CatalogueEntry) -> dict[str, Any]:
    options = [
        {name: getattr(option, name) for name in ("name", "kind", "expected", "required")}
        | {"default": None if option.required else _plain(option.default)}
        for option in entry.parameters
    ]
    return {"name": entry.name, "summary": entry.summary, "options": options}


def _plain(value: object) -> object:
    """Convert a default to a JSON value; fractions become strings, as in topology files."""
    return value if value is None or isinstance(value, (bool, int, str)) else str(value)


def _print_options(entry: CatalogueEntry) -> None:
    from ..arguments.networks import flag_of

    emit(f"{entry.name}: {entry.summary}")
    table = bare_table("option", "value", "default")
    table.columns[0].no_wrap = True
    for option in entry.parameters:
        table.add_row(flag_of(option.name), option.expected, "required" if option.required else _in_words(option))
    emit(table)


def _in_words(option: Parameter) -> str:
    """Format a default as on the command line."""
    if option.default is None:
        return "none"
    return str(option.default).lower() if isinstance(option.default, bool) else str(option.default)
