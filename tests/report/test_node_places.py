"""Where nodes are drawn: every one in a place of its own, in an arrangement that shows the network."""

from __future__ import annotations

from typing import Any

import networkx as nx
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collopt import Topology, topologies
from collopt.report import link_curves, node_layout
from sample_sizes import examples

NETWORKS = [
    topologies.complete(2),
    topologies.dgx1_v100(),
    topologies.dgx_a100(boxes=1),
    topologies.dgx_a100(boxes=2),
    topologies.mi250(boxes=2),
    topologies.rail(boxes=4),
    topologies.rail(boxes=16),
    topologies.fat_tree(4),
    topologies.leaf_spine(leaves=4, spines=2, hosts_per_leaf=4),
    topologies.dragonfly(2, 2, 1),
    topologies.torus(4, 4),
    topologies.torus(2, 3, 2, 2),
    topologies.kautz(2, 2),
    topologies.generalized_kautz(4, 150),
]


def distances(layout: pd.DataFrame) -> Any:
    """Distance of every two nodes, without a bound of each from itself."""
    points = layout[["x", "y"]].to_numpy()
    between = np.linalg.norm(points[:, None] - points[None], axis=2)
    np.fill_diagonal(between, np.inf)
    return between


@pytest.mark.parametrize("topology", NETWORKS, ids=lambda topology: topology.name)
def test_no_two_nodes_overlap(topology: Topology) -> None:
    """Nodes are listed in order with their kinds, and those nearest to each other are some way apart."""
    layout = node_layout(topology)
    assert layout["node"].tolist() == list(topology.nodes)
    assert (layout["kind"] == "compute").tolist() == [node in topology.compute_nodes for node in topology.nodes]
    assert np.isfinite(layout[["x", "y"]].to_numpy()).all()
    assert distances(layout).min() > 0.5
    pd.testing.assert_frame_equal(layout, node_layout(topology))


def test_rows_have_ranks_below_their_nics_and_these_below_the_fabric() -> None:
    """NVSwitches, which lead nowhere else, are under the ranks; boxes do not mix."""
    layout = node_layout(topologies.dgx_a100(boxes=2)).set_index("node")
    heights = {name: set(layout.loc[layout.index.str.contains(name), "y"]) for name in ("gpu", "nic", "nvswitch")}
    assert all(len(values) == 1 for values in heights.values())
    order = ["box0/nvswitch", "box0/gpu0", "box0/nic0", "ib"]
    assert layout.loc[order, "y"].is_monotonic_increasing
    assert layout.loc[layout["box"] == "box0", "x"].max() < layout.loc[layout["box"] == "box1", "x"].min()
    assert set(layout["box"]) == {"box0", "box1", ""}
    assert layout.loc["box1/nic3", "x"] == layout.loc["box1/gpu3", "x"]


def test_a_torus_is_a_grid() -> None:
    """The last coordinate runs across and the one before it down; copies stand side by side for the third."""
    layout = node_layout(topologies.torus(2, 3, 4)).set_index("node")
    plane = layout.loc[layout.index.str.startswith("gpu0.")]
    assert plane["x"].tolist() == [0, 1, 2, 3] * 3
    assert plane["y"].tolist() == [2] * 4 + [1] * 4 + [0] * 4
    assert layout.loc["gpu1.0.0", "x"] > plane["x"].max() + 1
    assert layout.loc["gpu1.2.3", "y"] == plane.loc["gpu0.2.3", "y"]


@settings(max_examples=examples(40))
@given(st.data())
def test_any_network_has_a_layout_and_curves(data: st.DataObject) -> None:
    """Random graphs have finite places that differ."""
    nodes = data.draw(st.integers(2, 12))
    ranks = data.draw(st.integers(2, nodes))
    pairs = [(tail, head) for tail in range(nodes) for head in range(nodes) if tail != head]
    links = data.draw(st.lists(st.sampled_from(pairs), unique=True, min_size=1))
    network = Topology.from_links([(*pair, 1) for pair in links], compute=range(ranks), switches=range(ranks, nodes))
    layout = node_layout(network)
    assert np.isfinite(layout[["x", "y"]].to_numpy()).all()
    assert distances(layout).min() > 0.1
    assert np.isfinite(link_curves(network)[["bend_x", "bend_y"]].to_numpy()).all()


def test_links_bend_around_nodes_in_their_way_and_nowhere_else() -> None:
    """Only the closing link of a row bends, the same way in both directions."""
    topology = topologies.torus(4, 4)
    layout = node_layout(topology).set_index("node")
    curves = link_curves(topology)
    middles = (
        layout.loc[curves["tail"], ["x", "y"]].to_numpy() + layout.loc[curves["head"], ["x", "y"]].to_numpy()
    ) / 2
    bent = np.abs(curves[["bend_x", "bend_y"]].to_numpy() - middles).max(axis=1) > 1e-9
    assert bent.sum() == 16  # 4 rows and 4 columns, both directions
    for (tail, head), rows in curves.groupby(
        curves.apply(lambda row: tuple(sorted((row["tail"], row["head"]))), axis=1)
    ).groups.items():
        assert curves.loc[rows, ["bend_x", "bend_y"]].nunique().tolist() == [1, 1], (tail, head)
    steps = nx.relabel_nodes(topology.to_networkx(), dict(layout[["x", "y"]].apply(tuple, axis=1)))
    long = sum(abs(tail[0] - head[0]) + abs(tail[1] - head[1]) > 1 for tail, head in steps.edges)
    assert long == bent.sum()
