"""``collopt topologies`` and ``import``: the networks of the catalogue, and those in files of other tools."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...topologies import CatalogueEntry, LinkClass, Topology
from ..terminal.networks import find_network, flag_of, join_files, network_file
from ..terminal.output import Formats, bare_table, emit, emit_json, emit_rows, note
from ..terminal.output_files import check_targets, name_errors_after
from ..terminal.parameters import NetworkOptions, UsageError

if TYPE_CHECKING:
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
    options = [{"topology": entry.name} | option for entry in catalogue() for option in _as_json(entry)["options"]]
    if not formats.emit(lambda: options, lambda: [_as_json(entry) for entry in catalogue()]):
        table = bare_table("name", "summary", "options")
        table.columns[0].no_wrap = True
        for listed in catalogue():
            words = (option.name + ("" if option.required else f"={_in_words(option)}") for option in listed.parameters)
            table.add_row(listed.name, listed.summary, " ".join(words))
        emit(table)


def _refuse_path(name: str) -> None:
    """Refuse a path by naming the command for files."""
    from ...support.files import kind_of
    from ...topologies.builders import looks_like_path

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


def import_network(
    files: list[str], described: NetworkOptions, output: Path | None = None, as_json: bool = False
) -> None:
    """Show the network that files of other tools describe, and write it as a topology file."""
    from ...topologies import link_classes, write_topology

    sources = [_source(file) for file in files]
    check_targets({"--output": output}, sources=sources)
    network = join_files(sources, described) if len(files) > 1 else find_network(files[0], described)
    classes = link_classes(network)
    if output is not None:
        with name_errors_after(output):
            write_topology(network, output)
    if as_json:
        emit_json(_figures(network, classes))
    else:
        names = ", ".join("standard input" if file == "-" else file for file in dict.fromkeys(files))
        emit_rows(f"{network.name}, from {names}", _rows(network, classes))
    if output is not None:
        note(f"wrote {output}")


def _source(file: str) -> Path:
    """Return the path of a file; a catalogue name is refused."""
    from ...topologies.builders import find_entry

    if (source := network_file(file)) is None:
        find_entry(file, ", or the path of a file")
        raise UsageError(f"{file} is a topology of the catalogue; write ./{file} for the file of that name")
    return source


def _rows(network: Topology, classes: tuple[LinkClass, ...]) -> dict[str, str]:
    from ...support.formatting import abbreviated_names, rate_text

    switches = abbreviated_names(network.switch_nodes) if network.switch_nodes else "none"
    links = {f"{len(link_class.links)} x {link_class.name}": rate_text(link_class.bandwidth) for link_class in classes}
    return {"ranks": f"{network.num_ranks}: {abbreviated_names(network.compute_nodes)}", "switches": switches} | links


def _figures(network: Topology, classes: tuple[LinkClass, ...]) -> dict[str, Any]:
    return {
        "name": network.name,
        "digest": network.digest,
        "ranks": list(network.compute_nodes),
        "switches": list(network.switch_nodes),
        "link_classes": [
            {"name": link_class.name, "links": len(link_class.links), "bandwidth_gbps": float(link_class.bandwidth)}
            for link_class in classes
        ],
    }
