"""``collopt sensitivity``: which links are worth more bandwidth."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import combinations
from typing import TYPE_CHECKING, Any

from ...schedules.collective import as_collective
from ...support.formatting import bandwidth_text, rate_text
from ...support.quantities import as_factor
from ..terminal.output import Formats, emit, number_table, plain_rows
from ..terminal.parameters import NetworkOptions, ShardOptions
from ..terminal.progress import computing

if TYPE_CHECKING:
    import pandas as pd

    from ...topologies import Link, Topology

    _Names = Callable[[Link], str]

MAX_ROWS = 32  # that people read; JSON and CSV have all
OTHERS = ""  # group of links that are not asked for


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
    from ...planners import sensitivity as find_sensitivity
    from ..terminal.networks import find_network

    operation, part = as_collective(collective), as_factor(step, "--step")
    network = find_network(topology, described)

    def table_of(together: Callable[[Link], str]) -> pd.DataFrame:
        return _by_group(find_sensitivity(network, operation, step=part, together=together, **data.read()))

    with computing(f"widening links of {network.name}"):
        table = table_of(_ends if links else _class_names(network).__getitem__)
        rate = sum(table["worth"].tolist())
        if not links:
            table = _with_pairs(table, network, table_of)

    def rows() -> list[dict[str, Any]]:
        return plain_rows(table.assign(bandwidth=[", ".join(map(str, rates)) for rates in table["bandwidth"]]))

    about = {"topology": network.name, "collective": str(operation), "step": str(part)}
    if not formats.emit(rows, lambda: about | {"links": rows()}):
        emit(f"{operation} on {network.name}: the bound on algbw, {rate_text(rate)}, rests on these links")
        _print(table, part)


def _ends(link: Link) -> str:
    return f"{link.tail}--{link.head}"


def _with_pairs(alone: pd.DataFrame, network: Topology, table_of: Callable[[_Names], pd.DataFrame]) -> pd.DataFrame:
    """Add pairs of classes with a switch in common that gain more than both do alone, as links in a row."""
    import pandas as pd

    names, gains, tables = _class_names(network), alone.set_index("group")["gain"], [alone]
    at = {name: {node for link in names if names[link] == name for node in link[:2]} for name in gains.index}
    for pair in combinations(at, 2):
        if not (at[pair[0]] & at[pair[1]]).isdisjoint(network.switch_nodes):
            both = table_of(partial(_of_pair, names=names, pair=pair))
            tables.append(both[(both["group"] != OTHERS) & (both["gain"] > sum(gains[name] for name in pair))])
    return _sorted(pd.concat(tables))


def _of_pair(link: Link, names: dict[Link, str], pair: tuple[str, str]) -> str:
    return " + ".join(pair) if names[link] in pair else OTHERS


def _class_names(network: Topology) -> dict[Link, str]:
    """Name the class of each link."""
    from ...topologies import link_classes

    return {link: link_class.name for link_class in link_classes(network) for link in link_class.links}


def _by_group(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a row for each group of links: name, links, which bandwidths these have in GB/s, gain and worth."""
    groups = frame.groupby("group", sort=False)
    table = groups[["gain", "worth"]].first()
    table.insert(0, "links", groups.size())
    table.insert(1, "bandwidth", groups["bandwidth"].agg(lambda rates: sorted(set(rates))))
    return _sorted(table.rename_axis("group").reset_index())


def _sorted(table: pd.DataFrame) -> pd.DataFrame:
    return table.sort_values(["gain", "worth"], ascending=False, kind="stable")


def _print(table: pd.DataFrame, part: Any) -> None:
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
