"""Figures of networks: what is drawn, how often, and in which color."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("matplotlib", reason="figures need matplotlib")

from matplotlib.colors import to_hex

import collopt
from collopt import Topology, topologies
from collopt.report import node_layout, topology_figure
from collopt.report.figures.network import LINK_COLOR, WITNESS_COLOR

NETWORKS = [
    topologies.dgx_a100(boxes=2),
    topologies.torus(4, 4),
    topologies.dgx1_v100(),
    topologies.mi250(boxes=2),
    topologies.fat_tree(4),
    topologies.kautz(2, 2),
    topologies.rail(boxes=16),
]


def drawn(figure: Any, name: str) -> Any:
    """Return what is drawn under a name, or None."""
    found = [each for each in figure.axes[0].collections if each.get_gid() == name]
    return found[0] if found else None


def lines(figure: Any, name: str) -> list[tuple[tuple[float, float], tuple[float, float]]]:
    """Both ends of each line that is drawn under a name, rounded and in order."""
    segments = drawn(figure, name).get_segments()
    return sorted(tuple(sorted(tuple(np.round(segment[end], 6).tolist()) for end in (0, -1))) for segment in segments)


def ends(topology: Topology, pairs: Any) -> list[tuple[tuple[float, float], tuple[float, float]]]:
    """Where lines between these nodes have their ends."""
    layout = node_layout(topology).set_index("node")[["x", "y"]].round(6)
    points = {node: (row["x"], row["y"]) for node, row in layout.iterrows()}
    return sorted({tuple(sorted((points[tail], points[head]))) for tail, head in pairs})


@pytest.mark.parametrize("topology", NETWORKS, ids=lambda topology: topology.name)
def test_every_link_is_drawn_once_and_every_node_in_its_place(topology: Topology) -> None:
    """Both directions of a link are one line; ranks and switches are where the layout has them."""
    figure = topology_figure(topology)
    assert lines(figure, "links") == ends(topology, [(link.tail, link.head) for link in topology.links])
    layout = node_layout(topology)
    for kind, name in (("compute", "ranks"), ("switch", "switches")):
        places = layout.loc[layout["kind"] == kind, ["x", "y"]].to_numpy()
        assert len(places) == 0 or drawn(figure, name).get_offsets().tolist() == places.tolist()
    assert drawn(figure, "counted") is None
    assert set(map(to_hex, drawn(figure, "links").get_colors())) == {LINK_COLOR}


@pytest.mark.parametrize("topology", NETWORKS, ids=lambda topology: topology.name)
@pytest.mark.parametrize("collective", ["allgather", "allreduce"])
def test_links_of_the_witness_have_their_color_and_the_others_have_not(topology: Topology, collective: str) -> None:
    """Together they are all links, and none is drawn as both."""
    bound = collopt.bound(topology, collective)
    figure = topology_figure(topology, bound)
    counted = collopt.report.bound_links(bound).query("in_cut")[["tail", "head"]].to_numpy().tolist()
    assert lines(figure, "counted") == ends(topology, counted)
    assert set(map(to_hex, drawn(figure, "counted").get_colors())) == {WITNESS_COLOR.lower()}
    every = ends(topology, [(link.tail, link.head) for link in topology.links])
    rest = lines(figure, "links") if drawn(figure, "links").get_segments() else []
    assert sorted(lines(figure, "counted") + rest) == every


def test_the_smaller_side_of_the_cut_is_shaded() -> None:
    """Of four boxes, the box that receives is shaded with its GPUs and NVSwitch."""
    topology = topologies.dgx_a100(boxes=4)
    figure = topology_figure(topology, collopt.bound(topology, "allgather"))
    layout = node_layout(topology).set_index("node")
    shaded = [node for node in topology.nodes if node.startswith("box0/") and "nic" not in node]
    assert sorted(drawn(figure, "part0").get_offsets().tolist()) == sorted(
        layout.loc[shaded, ["x", "y"]].values.tolist()
    )
    words = [text.get_text() for text in figure.legends[0].get_texts()]
    assert "outside the cut: 8 ranks" in words
    assert "link out of the cut (8, 200 GB/s together)" in words
    assert figure.axes[0].get_title() == "allgather on dgx-a100-4boxes: at most 266.67 GB/s"


def test_arrowheads_point_where_the_witness_counts() -> None:
    """Arrowheads of the cut point to the receiving side."""
    topology = topologies.torus(4, 4)
    bound = collopt.bound(topology, "allgather")
    figure = topology_figure(topology, bound)
    outside = next(node for node in topology.nodes if node not in bound.witness.nodes)
    target = node_layout(topology).set_index("node").loc[outside, ["x", "y"]].to_numpy(dtype=float)
    for path in drawn(figure, "arrowheads").get_paths():
        tip, left, right = path.vertices[:3]
        assert np.linalg.norm(tip - target) < np.linalg.norm((left + right) / 2 - target)
    assert len(drawn(figure, "arrowheads").get_paths()) == 4
