"""``collopt survive``, ``sensitivity`` and ``groups``: what failures cost, links are worth, and groups get."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import chain, combinations
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ... import planners
from ...support.formatting import bandwidth_text, count_text, percentage_text, rate_text
from ...support.quantities import as_factor
from ...topologies import Link, Topology, link_classes
from ..terminal.networks import find_network
from ..terminal.output import Formats, bare_table, emit, note, number_table, plain_rows
from ..terminal.output_files import check_targets, write_files
from ..terminal.parameters import NetworkOptions, ShardOptions, UsageError, check_planners, read_operation
from ..terminal.progress import computing

if TYPE_CHECKING:
    import pandas as pd
    from rich.table import Table


BASELINES = {"rings": "ring", "trees": "double-binary-tree"}  # those that `survive` compares with by default
MAX_ROWS = 32  # of links that people read; JSON and CSV have all
OTHERS = ""  # group of links that are not asked for
FIGURES = ("algbw", "limit", "gap", "link_share", "alone", "loss")


def survive(
    topology: str,
    collective: str,
    described: NetworkOptions,
    formats: Formats,
    failures: str = "link,nic,gpu,switch",
    derate: list[str] | None = None,
    pairs: list[str] | None = None,
    planner: str = "auto",
    root: str | None = None,
    jobs: int | None = None,
    output: Path | None = None,
) -> None:
    """Plan for every failed link, NIC, GPU and switch, and show the cost of each.

    Failures that are alike by symmetry are one case. COLLECTIVE may be several, comma-separated.
    """
    collectives = [read_operation(name.strip()) for name in collective.split(",")]
    check_planners([planner])
    kinds = [] if failures == "none" else [kind.strip() for kind in failures.split(",")]
    network = find_network(topology, described)
    with computing(f"planning for failures of {network.name}"):
        frame = planners.survive(
            network,
            collectives,
            failures=kinds,
            derate=derate or (),
            pairs=pairs or (),
            planner=planner,
            root=ShardOptions(root).read().get("root"),
            folder=output,
            jobs=jobs,
        )
    if not formats.emit(lambda: plain_rows(frame)):
        for name, rows in frame.groupby("collective", sort=False):
            emit(f"{name} on {network.name}, {network.num_ranks} ranks")
            emit(_failure_table(rows))
    if output is not None:
        planned = [case for case in planners.PlanFolder(output).cases if case.file is not None]
        note(f"{output} has plans for {count_text(len(planned), 'case')}")


def _failure_table(frame: pd.DataFrame) -> Table:
    """One row per case, the intact network first."""
    import pandas as pd

    table = bare_table()
    table.add_column("failure", no_wrap=True)
    for header in (
        "alike",
        "ranks",
        "algbw GB/s",
        "optimality gap",
        "loss",
        *(f"{baseline} lose" for baseline in BASELINES),
    ):
        table.add_column(header, justify="right", no_wrap=True)
    for row in frame.to_dict("records"):
        losses = [row["loss_exact"], *(row[f"loss_{name}"] for name in BASELINES.values())]
        planned = row["status"] == "ok"
        gap = ("optimal" if row["gap_exact"] == 0 else percentage_text(row["gap_exact"])) if planned else row["status"]
        algbw = f"{row['algbw']:.2f}" if planned else ""
        texts = ["" if pd.isna(loss) else percentage_text(loss) for loss in losses]
        table.add_row(row["failure"], str(row["count"]), str(row["ranks"]), algbw, gap, *texts)
    return table


def sensitivity(
    topology: str,
    collective: str,
    described: NetworkOptions,
    data: ShardOptions,
    formats: Formats,
    step: str = "1/10",
    links: bool = False,
) -> None:
    """Compute the gain of more bandwidth, by class of links, the most rewarding first.

    Links of a class, such as those from GPUs to NICs, are widened together, and with those of a second class where that
    gains more than each alone, as for links in a row.
    """
    operation, part = read_operation(collective), as_factor(step, "--step")
    network = find_network(topology, described)
    names = {link: link_class.name for link_class in link_classes(network) for link in link_class.links}
    if links:
        names = {link: f"{link.tail}--{link.head}" for link in network.links}

    def table_of(groups: dict[Link, str]) -> pd.DataFrame:
        together, shards = groups.__getitem__, data.read()
        return _by_group(planners.sensitivity(network, operation, step=part, together=together, **shards))

    with computing(f"widening links of {network.name}"):
        table = table_of(names)
        rate = sum(table["worth"].tolist())
        if not links:
            table = _with_pairs(table, network, names, table_of)

    def rows() -> list[dict[str, Any]]:
        return plain_rows(table.assign(bandwidth=[", ".join(map(str, rates)) for rates in table["bandwidth"]]))

    about = {"topology": network.name, "collective": str(operation), "step": str(part)}
    if not formats.emit(rows, lambda: about | {"links": rows()}):
        emit(f"{operation} on {network.name}: the bound on algbw, {rate_text(rate)}, rests on these links")
        _print_gains(table, part)


def _with_pairs(
    alone: pd.DataFrame, network: Topology, names: dict[Link, str], table_of: Callable[[dict[Link, str]], pd.DataFrame]
) -> pd.DataFrame:
    """Add pairs of classes with a switch in common that gain more than both do alone, as links in a row."""
    import pandas as pd

    gains, tables = alone.set_index("group")["gain"], [alone]
    at = {name: {node for link in names if names[link] == name for node in link[:2]} for name in gains.index}
    for pair in combinations(at, 2):
        if not (at[pair[0]] & at[pair[1]]).isdisjoint(network.switch_nodes):
            both = table_of({link: " + ".join(pair) if name in pair else OTHERS for link, name in names.items()})
            tables.append(both[(both["group"] != OTHERS) & (both["gain"] > sum(gains[name] for name in pair))])
    return _sorted(pd.concat(tables))


def _by_group(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a row for each group of links: name, links, which bandwidths these have in GB/s, gain and worth."""
    groups = frame.groupby("group", sort=False)
    table = groups[["gain", "worth"]].first()
    table.insert(0, "links", groups.size())
    table.insert(1, "bandwidth", groups["bandwidth"].agg(lambda rates: sorted(set(rates))))
    return _sorted(table.rename_axis("group").reset_index())


def _sorted(table: pd.DataFrame) -> pd.DataFrame:
    return table.sort_values(["gain", "worth"], ascending=False, kind="stable")


def _print_gains(table: pd.DataFrame, part: Any) -> None:
    shown = number_table(
        "links", "number", "GB/s each", f"gain at +{100 * float(part):g} %", "at +100 %, at most", text={"links"}
    )
    for row in table.head(MAX_ROWS).to_dict("records"):
        gains = (bandwidth_text(value, 2) for value in (row["gain"] * part, row["worth"]))
        rates = ", ".join(f"{float(rate):g}" for rate in row["bandwidth"])
        shown.add_row(row["group"], str(row["links"]), rates, *gains)
    emit(shown)
    if len(table) > MAX_ROWS:
        emit(f"and {len(table) - MAX_ROWS} more; --csv has all")


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
        _print_groups(frame, network)
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


def _print_groups(frame: pd.DataFrame, network: Topology) -> None:
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
