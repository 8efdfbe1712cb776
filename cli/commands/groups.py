"""``collopt groups``: plans for process groups that share a fabric at the same time."""

from __future__ import annotations

import re
from itertools import chain
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING

from ... import planners
from ...support.formatting import count_text, percentage_text
from ...topologies import Topology
from ..terminal.networks import find_network
from ..terminal.output import Formats, emit, note, number_table, plain_rows
from ..terminal.output_files import check_targets, write_files
from ..terminal.parameters import NetworkOptions, UsageError
from ..terminal.progress import computing

if TYPE_CHECKING:
    import pandas as pd


FIGURES = ("algbw", "limit", "gap", "link_share", "alone", "loss")


def groups(
    topology: str,
    described: NetworkOptions,
    formats: Formats,
    file: Path | None = None,
    mesh: str | None = None,
    axis: list[str] | None = None,
    output: Path | None = None,
) -> None:
    """Plan for process groups that share a fabric, at the best rates in proportion to their sizes, proved together."""
    from ...planners.plans.plan import document_text

    if (file is None) == (mesh is None) or (mesh is None) != (axis is None):
        raise UsageError("expected a file of groups, or --mesh and --axis, such as --mesh 2x8 --axis 1:allgather")
    network = find_network(topology, described._replace(relay=False))
    process_groups = planners.read_groups(file) if file is not None else _of_mesh(network, str(mesh), axis or [])
    targets = {} if output is None else {group.name: output / f"{group.name}.json" for group in process_groups}
    if output is not None and output.is_dir():
        check_targets({f"--output, group {name}:": path for name, path in targets.items()}, sources=(file,))
    with computing(f"planning {count_text(len(process_groups), 'group')} on {network.name}"):
        planned = planners.plan_groups(network, process_groups, relay=bool(described.relay))
        frame = planned.table().astype(dict.fromkeys(FIGURES, float))
    if output is not None:
        output.mkdir(exist_ok=True)
        plans = zip(targets.values(), planned.plans, strict=True)
        write_files({path: document_text(plan.to_json()) for path, plan in plans})
    about = {"topology": network.name, "gap": float(planned.gap)}
    if not formats.emit(lambda: plain_rows(frame), lambda: about | {"groups": plain_rows(frame)}):
        _print(frame, network)
    if output is not None:
        note(f"wrote {count_text(len(targets), 'plan')} to {output}")


def _of_mesh(network: Topology, mesh: str, axes: list[str]) -> tuple[planners.Group, ...]:
    """List the groups along each of the axes."""
    if not re.fullmatch(r"[0-9]{1,7}(x[0-9]{1,7})*", mesh):
        raise UsageError(f"--mesh is {mesh!r}; expected sides such as 2x8")
    shape = [int(side) for side in mesh.split("x")]
    groups_by_axes: dict[tuple[int, ...], tuple[planners.Group, ...]] = {}
    for text in axes:
        if not (words := re.fullmatch(r"([0-9]{1,7}(?:\+[0-9]{1,7})*):([^:]+)(?::([^:]+))?", text)):
            expected = "AXES:COLLECTIVE or AXES:COLLECTIVE:SIZE, such as 1:allgather:1G"
            raise UsageError(f"--axis is {text!r}; expected {expected}")
        if (axes_of_group := tuple(map(int, words[1].split("+")))) in groups_by_axes:
            raise UsageError(f"--axis has {words[1]} twice; give each axis once, or a file of groups with other names")
        groups_by_axes[axes_of_group] = planners.mesh_groups(shape, list(axes_of_group), words[2], size=words[3] or 1)
    if (ranks := prod(shape)) != network.num_ranks:
        raise UsageError(
            f"--mesh {mesh} has {ranks} ranks, and {network.name} has {network.num_ranks}; make them equal"
        )
    return tuple(chain.from_iterable(groups_by_axes.values()))


def _print(frame: pd.DataFrame, network: Topology) -> None:
    text = "group", "collective"
    table = number_table(*text, "ranks", "algbw GB/s", "limit", "gap", "link share", "alone", "loss", text=text)
    table.title = f"{count_text(len(frame), 'group')} on {network.name}, {network.num_ranks} ranks, verified together"
    table.title_justify = "left"
    for row in frame.to_dict("records"):
        algbw, limit, alone = (f"{row[name]:.2f}" for name in ("algbw", "limit", "alone"))
        gap, share, loss = (percentage_text(row[name]) for name in ("gap", "link_share", "loss"))
        gap = gap if row["gap"] else "optimal"
        table.add_row(row["group"], row["collective"], str(row["ranks"]), algbw, limit, gap, share, alone, loss)
    emit(table)
