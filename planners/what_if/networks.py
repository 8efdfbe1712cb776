"""Networks side by side: what a mix of calls takes on each, what it is built of and costs, and what failures cost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import TopologyError, UnsupportedError
from ...schedules import ALL_TO_ALL, Collective, as_bytes
from ...schedules.collective import AnyCollective, as_collective
from ...support import progress
from ...support.quantities import Exact, as_amount, as_factor
from ...support.validation import as_list, as_options, shown
from ...topologies import Topology, link_classes
from ...topologies.network.links import node_kind
from ...topologies.network.topology import as_topology
from ..bounds import bound
from ..plans.registry import as_planner, plan
from .compare import plan_and_times
from .survive import survive

if TYPE_CHECKING:
    import pandas as pd

Calls = Mapping[AnyCollective, Mapping[int | str, Exact]]
"""How many calls there are, or which share of all, by collective and size in bytes."""

NIC = "nic"  # kind of the nodes that are neither ranks nor switches that someone buys


def network_parts(topology: Topology) -> pd.DataFrame:
    """Count what a network is built of.

    Parameters
    ----------
    topology : Topology
        Kinds of nodes are read from their names, see `collopt.topologies.link_classes`.

    Returns
    -------
    DataFrame
        One row per kind of nodes and class of links.

        - ``part``: such as ``gpu``, ``nvswitch`` or ``gpu-nic:25``; ``count``: of cables, a pair of links is one.
        - ``kind``: ``"rank"``, ``"switch"`` or ``"cable"``; ``ports``: ends of cables, of all together.
        - ``gbps``: GB/s of a cable in the faster direction.
        - ``between_boxes``: how many leave a box; nodes are in one if their names agree up to the last slash.

    Examples
    --------
    >>> from collopt.topologies import dgx_a100
    >>> print(network_parts(dgx_a100(boxes=2)).to_string(index=False))
                part  count   kind  ports  gbps  between_boxes
                 gpu     16   rank     32   NaN              0
            nvswitch      2 switch     16   NaN              0
                 nic     16 switch     32   NaN              0
                  ib      1 switch     16   NaN              0
    gpu-nvswitch:300     16  cable     32 300.0              0
          gpu-nic:25     16  cable     32  25.0              0
           nic-ib:25     16  cable     32  25.0             16
    """
    import pandas as pd

    ranks, nodes = as_topology(topology).num_ranks, topology.nodes
    index, (tails, heads, *_) = topology.node_index, topology.columns
    pairs = np.unique(np.stack([np.minimum(tails, heads), np.maximum(tails, heads)]), axis=1)
    ports = np.bincount(pairs.ravel(), minlength=len(nodes)).tolist()
    kinds = [(node_kind(node, "rank"), "rank") for node in nodes[:ranks]]
    kinds += [(node_kind(node, "switch"), "switch") for node in nodes[ranks:]]
    counts, ends = Counter(kinds), Counter[tuple[str, str]]()
    for kind, number in zip(kinds, ports, strict=True):
        ends[kind] += number
    rows: list[tuple[Any, ...]] = [(name, counts[name, kind], kind, ends[name, kind], None, 0) for name, kind in counts]
    boxes = [node.rpartition("/")[0] or node for node in nodes]
    widths: dict[frozenset[str], Fraction] = {}  # of the faster direction
    for link in topology.links:
        cable = frozenset(link[:2])
        widths[cable] = max(link.bandwidth, widths.get(cable, link.bandwidth))
    for links in link_classes(topology):
        cables = {frozenset(link[:2]) for link in links.links if widths[frozenset(link[:2])] == links.bandwidth}
        crossing = sum(len({boxes[index[node]] for node in cable}) > 1 for cable in cables)
        if cables:
            part = f"{links.kinds}:{links.bandwidth}"
            rows.append((part, len(cables), "cable", 2 * len(cables), float(links.bandwidth), crossing))
    return pd.DataFrame(rows, columns=["part", "count", "kind", "ports", "gbps", "between_boxes"])


def compare_networks(
    networks: Iterable[Topology],
    calls: Calls,
    *,
    planner: str = "auto",
    prices: Mapping[str, Exact] | None = None,
    failures: Iterable[str] = (),
    bisection: bool = False,
    jobs: int | None = None,
) -> pd.DataFrame:
    """Compare networks by a mix of calls, by their parts and prices, and by what the worst failure costs.

    Raises `UnsupportedError` or `TopologyError` for requests that are not understood, and what planners raise, also
    after a failure that leaves all ranks connected.

    Parameters
    ----------
    networks : iterable of Topology
        Any; sizes of calls are totals as nccl-tests counts them, so networks of equally many ranks compare best.
    calls : mapping
        How many calls there are by collective and size: ``{"allreduce": {"1G": 3}, "all_to_all": {"64M": 1}}``.  Rank 0
        is the root of those that have one.
    planner : str
        Plans every call for its size.
    prices : mapping of str to number, optional
        Price of a node or cable by part, as `network_parts` names them, in any currency.  Every part of each network
        has one; a class without a bandwidth, such as ``gpu-nic``, stands for all between these kinds.
    failures : iterable of str
        Kinds of single failures, as for `survive`: ``"link"``, ``"nic"``, ``"switch"``, ``"gpu"``.
    bisection : bool
        Whether to plan an all-to-all, which may take longer than all other plans.
    jobs : int, optional
        Processes that plan after failures.

    Returns
    -------
    DataFrame
        One row per network, in their order.

        - ``name``, ``ranks``; ``us``: predicted time of all calls; ``bound_us``: what no schedule is below.
        - ``us_<collective>_<size>``: of one such call.
        - ``switches``, ``nics``, ``cables``, ``cables_between_boxes``: how many; ``ports``: ends of cables at switches.
        - ``bisection``, ``bisection_exact``: GB/s at least that leave any half of the ranks; by uniform all-to-all.
        - ``price``: of all parts.
        - ``worst_failure``; ``worst_loss``, ``worst_loss_exact``: share of the intact network's rate of the whole mix
          (for endless data) that it costs; 1 if ranks are cut off.
        - ``network``: the `Topology`.

    Examples
    --------
    >>> from collopt.topologies import ring, torus
    >>> table = compare_networks(
    ...     [ring(16, bandwidth=50), torus((4, 4), bandwidth=25)],
    ...     {"allreduce": {"1G": 1}, "all_to_all": {"64M": 2}},
    ...     prices={"gpu": 0, "gpu-gpu": 100},
    ... )
    >>> table[["name", "us", "cables", "price"]].round(0).values.tolist()
    [['ring-16', 25501.0, 16, 1600.0], ['torus-4x4', 22817.0, 32, 3200.0]]
    """
    import pandas as pd

    listed = [as_topology(network) for network in as_list(networks, "the networks")]
    if not listed:
        raise UnsupportedError("there is no network; expected one at least")
    mix = _checked_calls(calls)
    kinds = as_options(failures, "the failures")
    parts_of = [network_parts(network) for network in listed]
    costs = [None if prices is None else _price(*pair, prices) for pair in zip(listed, parts_of, strict=True)]
    rows = []
    for network, parts, price in progress.iterate(zip(listed, parts_of, costs, strict=True), len(listed)):
        counts = dict(zip(parts["part"], parts["count"], strict=True))
        switches, cables = parts[(parts["kind"] == "switch") & (parts["part"] != NIC)], parts[parts["kind"] == "cable"]
        row: dict[str, object] = {"name": network.name, "ranks": network.num_ranks}
        row |= _times(network, mix, planner)
        row |= {
            "switches": int(switches["count"].sum()),
            "nics": counts.get(NIC, 0),
            "ports": int(switches["ports"].sum()),
            "cables": int(cables["count"].sum()),
            "cables_between_boxes": int(cables["between_boxes"].sum()),
        }
        if bisection:
            # Each rank sends a part of algbw to each, and each of one half to all of the other.
            exact = (
                plan(network, ALL_TO_ALL, planner="multicommodity").algbw
                * (network.num_ranks // 2)
                * (-(-network.num_ranks // 2))
            )
            exact /= network.num_ranks
            row |= {"bisection": float(exact), "bisection_exact": exact}
        if price is not None:
            row["price"] = float(price)
        if kinds:
            row |= _worst_failure(network, mix, kinds, planner, jobs)
        rows.append({**row, "network": network})
    return pd.DataFrame(rows)


def _checked_calls(calls: Calls) -> list[tuple[Collective, int | str, Fraction]]:
    """List collective, size and number of the calls."""
    if not isinstance(calls, Mapping) or not all(isinstance(sizes, Mapping) for sizes in calls.values()):
        raise UnsupportedError(
            f"the calls are {shown(calls)}; expected counts by collective and size: {{'allreduce': {{'1G': 3}}}}"
        )
    mix = [
        (as_collective(name), size, as_factor(count, f"the number of calls of {name} of {size}"))
        for name, sizes in calls.items()
        for size, count in sizes.items()
    ]
    for collective, size, _ in mix:
        as_bytes(size)
        if collective.has_items or collective.takes_traffic:
            raise UnsupportedError(f"calls of {collective} are more than a size; expected other collectives")
    if not mix:
        raise UnsupportedError("there is no call; expected one at least, such as {'allreduce': {'1G': 1}}")
    return mix


def _price(network: Topology, parts: pd.DataFrame, prices: Mapping[str, Exact]) -> Fraction:
    """Add up the prices of the parts of a network, as `network_parts` counts them."""
    if not isinstance(prices, Mapping) or not all(isinstance(part, str) for part in prices):
        raise UnsupportedError(
            f"the prices are {shown(prices)}; expected numbers by part: {{'gpu': 1, 'gpu-nic': 0.5}}"
        )
    amounts = {name: as_amount(price, f"the price of {name}") for name, price in prices.items()}
    total = Fraction(0)
    for part, count in zip(parts["part"], parts["count"].tolist(), strict=True):
        name = part if part in amounts else part.partition(":")[0]
        if name not in amounts:
            raise TopologyError(f"part {part!r} of {network.name} has no price; the prices are of {', '.join(amounts)}")
        total += amounts[name] * count
    return total


def _times(network: Topology, mix: list[tuple[Collective, int | str, Fraction]], planner: str) -> dict[str, object]:
    """Predict the time of every call, and bound it from below, in µs."""
    times, lowest = {}, Fraction(0)
    for collective, size, count in mix:
        _, predicted = plan_and_times(network, collective, as_planner(planner), _root(collective), [size])
        times[collective, size] = predicted[size].microseconds
        lowest += count * bound(network, collective, size=size, **_root(collective)).time
    total = sum(float(count) * times[collective, size] for collective, size, count in mix)
    by_call = {f"us_{collective}_{size}": time for (collective, size), time in times.items()}
    return {"us": total, "bound_us": float(lowest), **by_call}


def _root(collective: Collective) -> dict[str, Any]:
    """Rank 0 is the root, as in nccl-tests."""
    return {"root": 0} if collective.has_one_root else {}


def _worst_failure(
    network: Topology,
    mix: list[tuple[Collective, int | str, Fraction]],
    kinds: Iterable[str],
    planner: str,
    jobs: int | None,
) -> dict[str, object]:
    """Find the failure after which the mix takes longest, for endless data."""
    shares: dict[Collective, Fraction] = {}
    for collective, size, count in mix:
        shares[collective] = shares.get(collective, Fraction(0)) + count * as_bytes(size)
    options: dict[str, Any] = {"failures": kinds, "planner": planner, "baselines": (), "jobs": jobs}
    frames = [survive(network, collective, **_root(collective), **options) for collective in shares]
    times: dict[str, Fraction | None] = {}
    for row in (row for frame in frames for row in frame.to_dict("records")):
        if row["status"] == "failed":
            raise UnsupportedError(f"after {row['failure']} on {network.name}, {row['reason']}")
        before, name = times.get(row["failure"], Fraction(0)), row["failure"]
        rate = row["algbw_exact"] if row["status"] == "ok" else None
        share = shares[as_collective(row["collective"])]
        times[name] = None if before is None or rate is None else before + share / rate
    intact = times.pop("intact")
    losses = {
        name: Fraction(1) if time is None or intact is None else 1 - intact / time for name, time in times.items()
    }
    worst = max(losses, key=losses.__getitem__, default="")
    loss = losses.get(worst, Fraction(0))
    return {"worst_failure": worst, "worst_loss": float(loss), "worst_loss_exact": loss}
