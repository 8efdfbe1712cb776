"""Switched fabrics: leaf-spine, rail-optimized, fat tree, dragonfly.

All links are symmetric and bidirectional.  Hosts are the compute nodes; ``host5`` is rank 5.
"""

from fractions import Fraction
from typing import Any

import numpy as np

from ...errors import TopologyError
from ...support.arrays import IntArray
from ...support.quantities import Exact, as_bandwidth, as_factor, as_latency
from ...support.validation import MAX_SWITCHED_LINKS, as_flag, as_size, check_links
from ..network.topology import Link, Topology
from .box_files import stored_box
from .scale_out import FABRIC_LATENCY, MAX_BOXES, SCALE_UP_LATENCY, Box, Nic, repeat_box


def leaf_spine(
    leaves: int,
    spines: int,
    hosts_per_leaf: int,
    host_bandwidth: Exact = 25,
    *,
    oversubscription: Exact = 1,
    latency: Exact = FABRIC_LATENCY,
) -> Topology:
    """Two-level network: hosts on leaf switches, every leaf linked to every spine switch.

    Nodes are ``host0`` ... , ``leaf0`` ... , ``spine0`` ...

    Parameters
    ----------
    leaves, spines, hosts_per_leaf : int
        At least 2 leaves, 1 spine, 1 host per leaf.
    host_bandwidth : int, float, str or Fraction
        GB/s between a host and its leaf, in each direction; the default is one 200 Gb/s port.
    oversubscription : int, float, str or Fraction
        Bandwidth of a leaf's hosts over that of its uplinks: 2 halves the uplinks.
    latency : int, float, str or Fraction
        Microseconds of each link.

    Examples
    --------
    >>> fabric = leaf_spine(2, 3, 4, oversubscription=2)
    >>> fabric.link("leaf0", "spine0").bandwidth
    Fraction(50, 3)
    """
    leaves = as_size(leaves, "leaves", low=2)
    spines = as_size(spines, "spines")
    per_leaf = as_size(hosts_per_leaf, "hosts_per_leaf")
    label = f"leaf-spine-{leaves}x{per_leaf}"
    check_links(2 * leaves * (per_leaf + spines), label, MAX_SWITCHED_LINKS)
    bandwidth = as_bandwidth(host_bandwidth, "every host")
    uplink = bandwidth * per_leaf / spines / as_factor(oversubscription, "oversubscription")
    hosts = leaves * per_leaf
    leaf, spine = hosts + np.arange(leaves), hosts + leaves + np.arange(spines)
    down = _rows(np.arange(hosts), np.repeat(leaf, per_leaf), 0)
    return _two_way(
        np.concatenate([down, _rows(leaf[:, None], spine, 1).reshape(-1, 3)]),
        [(bandwidth, latency), (uplink, latency)],
        compute=_numbered("host", hosts),
        switches=_numbered("leaf", leaves) + _numbered("spine", spines),
        name=label,
    )


def rail(
    boxes: int,
    gpus_per_box: int = 8,
    *,
    nvswitch_bandwidth: Exact = 450,
    nic_bandwidth: Exact = 50,
    oversubscription: Exact | None = 1,
    sharp: bool = False,
) -> Topology:
    """Rail-optimized network: NIC i of every box on rail switch i, the rails joined by a spine or not at all.

    The default figures are those of DGX H100, latencies as in `collopt.topologies.dgx_h100`, and half a microsecond
    more for each link to the spine, one node that represents a non-blocking layer.

    Parameters
    ----------
    boxes : int
        1 to 131072.  A single box has neither NICs nor rails.
    gpus_per_box : int
        At least 2; each has its own NIC.
    nvswitch_bandwidth : int, float, str or Fraction
        GB/s between a GPU and the NVSwitch of its box, in each direction.
    nic_bandwidth : int, float, str or Fraction
        GB/s between a GPU, its NIC and its rail, in each direction.
    oversubscription : int, float, str, Fraction or None
        Bandwidth of a rail's NICs over that of its uplink to the spine; None leaves the spine out.
    sharp : bool
        Whether NVSwitches multicast and aggregate as in `collopt.topologies.dgx_h100` (NVLink SHARP), and rails do so
        without limits (SHARP of InfiniBand).  The spine never does.

    Examples
    --------
    >>> rail(4, oversubscription=2).link("rail0", "spine").bandwidth
    Fraction(100, 1)
    """
    boxes = as_size(boxes, "boxes", high=MAX_BOXES)
    gpus = as_size(gpus_per_box, "gpus_per_box", low=2)
    nic = as_bandwidth(nic_bandwidth, "every NIC")
    nvswitch = as_bandwidth(nvswitch_bandwidth, "every NVSwitch port")
    nvls = stored_box("dgx-h100").limits if as_flag(sharp, "sharp") else ()
    box = Box(
        name=f"rail-{gpus}",
        gpus=gpus,
        links=tuple(Link(f"gpu{gpu}", "nvswitch", nvswitch, SCALE_UP_LATENCY / 2) for gpu in range(gpus)),
        nics=tuple(Nic((f"gpu{gpu}",), nic, nic) for gpu in range(gpus)),
        switches=("nvswitch",),
        abilities=tuple(limit.switch for limit in nvls),
        limits=nvls,
    )
    rails = _numbered("rail", gpus)
    backbone = []
    if oversubscription is not None:
        uplink = nic * boxes / as_factor(oversubscription, "oversubscription")
        backbone = [Link(switch, "spine", uplink, FABRIC_LATENCY) for switch in rails]
    network = repeat_box(box, boxes, fabrics=rails, backbone=backbone)
    reducing = network.multicast.union(rails if sharp and boxes > 1 else ())
    return network.changed(multicast=reducing, aggregation=reducing)


def fat_tree(
    k: int, *, bandwidth: Exact = 25, oversubscription: Exact = 1, latency: Exact = FABRIC_LATENCY
) -> Topology:
    """Three-level k-ary fat tree: k pods, k**3 / 4 hosts, 5 k**2 / 4 switches.

    The wiring is that of Al-Fares, Loukissas and Vahdat, SIGCOMM 2008: aggregate switch i of every pod is linked to
    core switches i k/2 to (i + 1) k/2 - 1.

    Parameters
    ----------
    k : int
        Ports per switch: even, at least 2.
    bandwidth : int, float, str or Fraction
        GB/s between a host and its edge switch, in each direction; the default is one 200 Gb/s port.
    oversubscription : int, float, str or Fraction
        Bandwidth of links between hosts and switches over that of links between switches.
    latency : int, float, str or Fraction
        Microseconds of each link.

    Examples
    --------
    >>> fat_tree(4)
    <Topology 'fat-tree-4': 16 ranks, 20 switches, 96 links>
    """
    k = as_size(k, "k", low=2, high=2**16)
    if k % 2:
        raise TopologyError(f"k is {k}; expected an even number, half of the ports of a switch go up and half down")
    check_links(3 * k**3 // 2, f"fat-tree-{k}", MAX_SWITCHED_LINKS)
    half = k // 2
    down = as_bandwidth(bandwidth, "every host")
    up = down / as_factor(oversubscription, "oversubscription")
    hosts = half * k * half
    # Links pod by pod: hosts to edge, edge to aggregate, aggregate to core switches.
    pod, number_in_pod, other = np.ix_(np.arange(k), np.arange(half), np.arange(half))
    edge, aggregate, core = (hosts + start + pod * k for start in (0, half, k * k))
    to_edges = _rows((pod * half + number_in_pod) * half + other, edge + number_in_pod, 0)
    to_aggregates = _rows(edge + number_in_pod, aggregate + other, 1)
    to_cores = _rows(aggregate + number_in_pod, core - pod * k + number_in_pod * half + other, 1)
    below = np.concatenate([to_edges, to_aggregates], axis=2).reshape(k, -1, 3)
    pods = [f"pod{pod}/{role}{number}" for pod in range(k) for role in ("edge", "aggregate") for number in range(half)]
    return _two_way(
        np.concatenate([below, to_cores.reshape(k, -1, 3)], axis=1).reshape(-1, 3),
        [(down, latency), (up, latency)],
        compute=_numbered("host", hosts),
        switches=pods + _numbered("core", half * half),
        name=f"fat-tree-{k}",
    )


def dragonfly(
    routers_per_group: int,
    hosts_per_router: int,
    global_links_per_router: int,
    *,
    groups: int | None = None,
    bandwidth: Exact = 25,
    oversubscription: Exact = 1,
    latency: Exact = FABRIC_LATENCY,
) -> Topology:
    """Dragonfly: groups of fully connected routers, the groups joined by global links.

    Kim, Dally, Scott and Abts, ISCA 2008.  Global ports are wired consecutively: port q of a group, on router q // h,
    leads to the (q mod (groups - 1)) + 1-st group after it.  Nodes are ``host0`` ... , ``group0/router0`` ...

    Slingshot of Frontier is ``dragonfly(32, 16, 10, groups=74)`` with a host for each NIC, and four links between each
    two groups (https://glennklockwood.com/garden/systems/frontier).

    Parameters
    ----------
    routers_per_group, hosts_per_router, global_links_per_router : int
        The a, p and h of the paper; a balanced network has a = 2p = 2h.
    groups : int or None
        2 to a h + 1; None means the full a h + 1.  With fewer groups every two groups get the same number of links, as
        many as there are ports for; remaining ports are unused.
    bandwidth : int, float, str or Fraction
        GB/s of each link, in each direction; the default is one 200 Gb/s port.
    oversubscription : int, float, str or Fraction
        A global link carries ``bandwidth / oversubscription``.
    latency : int, float, str or Fraction
        Microseconds of each link.

    Examples
    --------
    >>> dragonfly(4, 2, 2)
    <Topology 'dragonfly-4-2-2': 72 ranks, 36 switches, 324 links>
    """
    routers = as_size(routers_per_group, "routers_per_group")
    hosts = as_size(hosts_per_router, "hosts_per_router")
    ports = routers * as_size(global_links_per_router, "global_links_per_router")
    groups = ports + 1 if groups is None else as_size(groups, "groups", low=2, high=ports + 1)
    label = f"dragonfly-{routers}-{hosts}-{ports // routers}"
    check_links(groups * (routers * (routers - 1 + 2 * hosts) + ports), label, MAX_SWITCHED_LINKS)
    local = as_bandwidth(bandwidth, "every router port")
    remote = local / as_factor(oversubscription, "oversubscription")
    rows = _group_links(groups, routers, hosts, ports)
    # With few groups, several ports of a router may lead to one and the same other router.
    _, first, times = np.unique(rows[:, 0] * 2**32 + rows[:, 1], return_index=True, return_counts=True)
    rows[first, 2] *= times
    return _two_way(
        rows[np.sort(first)],
        [(local, latency), *((remote * count, latency) for count in range(1, int(times.max()) + 1))],
        compute=_numbered("host", groups * routers * hosts),
        switches=[f"group{group}/router{router}" for group in range(groups) for router in range(routers)],
        name=label if groups == ports + 1 else f"{label}-{groups}groups",
    )


def _group_links(groups: int, routers: int, hosts: int, ports: int) -> IntArray:
    """Links of a dragonfly group by group, int64 (links, 3) as of `_rows`: to hosts, among routers, to later groups."""
    peers, ranks = groups - 1, groups * routers * hosts
    # Links inside the first group; later groups repeat them with larger numbers.
    inside = [
        end
        for router in range(routers)
        for end in (
            *((routers * hosts, router * hosts + host, router) for host in range(hosts)),
            *((routers, ranks + router, peer) for peer in range(router)),
        )
    ]
    stride, start, near = np.array(inside, dtype=np.int64).T
    group = np.arange(groups)[:, None]
    # Port `others * turn + step` reaches the (step + 1)-st group after this one, from which this group is the
    # (others - step)-th after.
    port = np.arange(ports // peers * peers)
    step = port % peers
    peer, peer_port = (group + step + 1) % groups, port + peers - 1 - 2 * step
    router = ranks + group * routers
    outside = _rows(router + port * routers // ports, ranks + peer * routers + peer_port * routers // ports, 1)
    rows = np.concatenate([_rows(group * stride + start, router + near, 0), outside], axis=1)
    return rows[np.hstack([np.ones((groups, len(near)), dtype=np.bool_), group < peer])]


def _rows(ends: IntArray, heads: IntArray, kind: int) -> IntArray:
    """Links of one kind between nodes, whose shapes are broadcast; int64 (..., 3)."""
    return np.stack(np.broadcast_arrays(ends, heads, np.int64(kind)), axis=-1)


def _two_way(rows: IntArray, rates: list[tuple[Fraction, Exact]], **fields: Any) -> Topology:
    """Make a network of links in both directions, int64 (links, 3)."""
    rates = [(bandwidth, as_latency(latency, fields["name"])) for bandwidth, latency in rates]
    return Topology.from_arrays(rows[:, :2].ravel(), rows[:, [1, 0]].ravel(), np.repeat(rows[:, 2], 2), rates, **fields)


def _numbered(prefix: str, count: int) -> list[str]:
    return [f"{prefix}{number}" for number in range(count)]
