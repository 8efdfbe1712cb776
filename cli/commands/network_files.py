"""``collopt topologies`` and ``import``: the networks of the catalogue, and those in files of other tools."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ...support.files import kind_of
from ...support.formatting import abbreviated_names, rate_text
from ...topologies import CatalogueEntry, catalogue, link_classes, write_topology
from ...topologies.builders import Parameter, find_entry, looks_like_path
from ..terminal.networks import find_network, flag_of, join_files, network_file
from ..terminal.output import Formats, bare_table, emit, emit_json, emit_rows, note
from ..terminal.output_files import check_targets, name_errors_after
from ..terminal.parameters import NetworkOptions, UsageError


def topologies(formats: Formats, name: str | None = None) -> None:
    """List the topologies of the catalogue, or the options of one."""
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
    if looks_like_path(name):
        if not Path(name).exists():
            raise UsageError(f"{name} does not exist; check the path")
        if Path(name).is_dir():
            raise UsageError(f"{name} is a folder, not a topology of the catalogue; expected a name, or none for all")
        kind = kind_of(Path(name))
        advice = kind.command(name) if kind else f"`collopt import {name}` shows what it describes"
        raise UsageError(f"{name} is a file, not a topology of the catalogue; {advice}")


def _as_json(entry: CatalogueEntry) -> dict[str, Any]:
    """Options with their defaults; fractions are strings, as in topology files."""
    options = []
    for option in entry.parameters:
        default = None if option.required else option.default
        plain = default if default is None or isinstance(default, (bool, int, str)) else str(default)
        facts = {name: getattr(option, name) for name in ("name", "kind", "expected", "required")}
        options.append(facts | {"default": plain})
    return {"name": entry.name, "summary": entry.summary, "options": options}


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
    sources = [_source(file) for file in files]
    check_targets({"--output": output}, sources=sources)
    network = join_files(sources, described) if len(files) > 1 else find_network(files[0], described)
    classes = [(entry.name, len(entry.links), entry.bandwidth) for entry in link_classes(network)]
    if output is not None:
        with name_errors_after(output):
            write_topology(network, output)
    if as_json:
        names = ("name", "links", "bandwidth_gbps")
        nodes = {"ranks": list(network.compute_nodes), "switches": list(network.switch_nodes)}
        rows = [dict(zip(names, (name, links, float(rate)), strict=True)) for name, links, rate in classes]
        emit_json({"name": network.name, "digest": network.digest, **nodes, "link_classes": rows})
    else:
        origin = ", ".join("standard input" if file == "-" else file for file in dict.fromkeys(files))
        ranks = f"{network.num_ranks}: {abbreviated_names(network.compute_nodes)}"
        switches = abbreviated_names(network.switch_nodes) if network.switch_nodes else "none"
        links_by_class = {f"{links} x {name}": rate_text(rate) for name, links, rate in classes}
        emit_rows(f"{network.name}, from {origin}", {"ranks": ranks, "switches": switches} | links_by_class)
    if output is not None:
        note(f"wrote {output}")


def _source(file: str) -> Path:
    """Return the path of a file; a catalogue name is refused."""
    if (source := network_file(file)) is None:
        find_entry(file, ", or the path of a file")
        raise UsageError(f"{file} is a topology of the catalogue; write ./{file} for the file of that name")
    return source
