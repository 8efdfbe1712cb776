"""``collopt sensitivity``: which links are worth more bandwidth."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...schedules.traffic.collective import as_collective
from ...support.formatting import bandwidth_text, rate_text
from ...support.quantities import as_factor
from ..arguments.network_options import NetworkOptions
from ..arguments.shared import ShardOptions
from ..terminal.output import emit, emit_csv, emit_json, number_table, plain_rows
from ..terminal.progress import computing

if TYPE_CHECKING:
    import pandas as pd

    from ...topologies import Topology

MAX_ROWS = 32  # that people read; JSON and CSV have all


def sensitivity(
    topology: str,
    collective: str,
    described: NetworkOptions,
    data: ShardOptions,
    step: str = "1/10",
    links: bool = False,
    as_json: bool = False,
    as_csv: bool = False,
) -> None:
    """Compute what more bandwidth of links gains, the most rewarding first.

    Links of a class, such as those from GPUs to NICs, are widened together.
    """
    from ...planners import sensitivity as find_sensitivity
    from ..arguments.networks import find_network

    known, part = as_collective(collective), as_factor(step, "--step")
    network = find_network(topology, described)
    together = _pair if links else _class_names(network).__getitem__
    with computing(f"widening links of {network.name}"):
        frame = find_sensitivity(
            network, known, step=part, together=lambda link: together((link.tail, link.head)), **data.read()
        )
    table = _by_group(frame)
    if as_json:
        emit_json({"topology": network.name, "collective": str(known), "step": str(part), "links": plain_rows(table)})
    elif as_csv:
        emit_csv(plain_rows(table))
    else:
        emit(f"{known} on {network.name}: {rate_text(sum(table['worth'].tolist()))} of algbw rest on these links")
        _print(table, part)


def _pair(pair: tuple[str, str]) -> str:
    return "--".join(pair)


def _class_names(network: Topology) -> dict[tuple[str, str], str]:
    """Name the class of each link."""
    from ...topologies import link_classes

    return {(link.tail, link.head): each.name for each in link_classes(network) for link in each.links}


def _by_group(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a row for each group of links, in the order of the frame: name, links, GB/s of each, gain and worth."""
    groups = frame.groupby("group", sort=False)
    table = groups[["bandwidth", "gain", "worth"]].first()
    table.insert(0, "links", groups.size())
    return table.sort_values(["gain", "worth"], ascending=False, kind="stable").rename_axis("group").reset_index()


def _print(table: pd.DataFrame, part: Any) -> None:
    shown = number_table(
        "links", "number", "GB/s each", f"gain at +{100 * float(part):g} %", "at +100 %, at most", text={"links"}
    )
    for row in table.head(MAX_ROWS).to_dict("records"):
        gains = (bandwidth_text(value, 2) for value in (row["gain"] * part, row["worth"]))
        shown.add_row(row["group"], str(row["links"]), f"{float(row['bandwidth']):g}", *gains)
    emit(shown)
    if len(table) > MAX_ROWS:
        emit(f"and {len(table) - MAX_ROWS} more; --csv has all")
