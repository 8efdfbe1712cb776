"""``collopt import``: imports a network or box from another tool's file, and writes it as a topology file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..arguments.output_files import check_targets, name_errors_after
from ..arguments.parameters import UsageError
from ..arguments.shared import NetworkOptions
from ..terminal.output import emit_json, emit_rows, note

if TYPE_CHECKING:
    from ...topologies import LinkClass, Topology


def import_network(
    files: list[str], described: NetworkOptions, output: Path | None = None, as_json: bool = False
) -> None:
    """Show the network that files of other tools describe, and write it as a topology file."""
    from ...topologies import link_classes, write_topology
    from ..arguments.networks import find_network, join_files

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
    from ..arguments.networks import network_file

    if (source := network_file(file)) is None:
        find_entry(file, ", or the path of a file")
        raise UsageError(f"{file} is a topology of the catalogue; write ./{file} for the file of that name")
    return source


def _rows(network: Topology, classes: tuple[LinkClass, ...]) -> dict[str, str]:
    from ...support.formatting import abbreviated_names, rate_text

    switches = abbreviated_names(network.switch_nodes) if network.switch_nodes else "none"
    links = {f"{len(each.links)} x {each.name}": rate_text(each.bandwidth) for each in classes}
    return {"ranks": f"{network.num_ranks}: {abbreviated_names(network.compute_nodes)}", "switches": switches} | links


def _figures(network: Topology, classes: tuple[LinkClass, ...]) -> dict[str, Any]:
    return {
        "name": network.name,
        "digest": network.digest,
        "ranks": list(network.compute_nodes),
        "switches": list(network.switch_nodes),
        "link_classes": [
            {"name": each.name, "links": len(each.links), "bandwidth_gbps": float(each.bandwidth)} for each in classes
        ],
    }
