"""Networks that functions take: topologies, networkx graphs, names and files."""

from collections.abc import Callable
from pathlib import Path

import networkx as nx
import pytest

from collopt import bound, bound_sizes, compare, plan, sensitivity, topology
from collopt.errors import ColloptError
from collopt.topologies import dgx_a100, ring, torus, twisted_torus, write_topology


def square() -> nx.Graph:
    """Ring of four nodes."""
    graph = nx.cycle_graph(4)
    nx.set_edge_attributes(graph, 10, "bandwidth")
    return graph


def test_one_function_makes_topologies_of_names_with_options(tmp_path: Path) -> None:
    """They mean what the builder returns, or the reader of a file."""
    boxes = dgx_a100(boxes=2)
    assert topology("dgx-a100", boxes=2).digest == topology("dgx_a100", boxes="2").digest == boxes.digest
    assert topology("torus", shape=(2, 3)).digest == torus(2, 3).digest
    assert topology(boxes) is boxes
    write_topology(ring(3), tmp_path / "lab.json")
    assert topology(tmp_path / "lab.json").digest == ring(3).digest


def test_each_function_takes_names() -> None:
    """Of networks that need no options."""
    boxes = dgx_a100()
    assert plan("dgx-a100", "allgather").topology.digest == boxes.digest
    assert bound("dgx_a100", "allgather") == bound(boxes, "allgather")
    sizes = bound_sizes("dgx-a100", "allgather", ["1M"])
    assert sizes == bound_sizes(boxes, "allgather", ["1M"]) == [bound("dgx-a100", "allgather", size="1M")]
    assert sensitivity("dgx-a100", "allgather").equals(sensitivity(boxes, "allgather"))
    table = compare("dgx-a100", "allgather", planners=["forestcoll"], bounds=["forestcoll"])
    assert table["algbw_exact"].tolist() == [plan(boxes, "allgather").algbw] * 2


def test_graphs_and_files_are_networks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A graph by its bandwidths, a file by its path; of text, names of the catalogue come first."""
    assert plan(square(), "allgather").algbw == plan(ring(4, bandwidth=10), "allgather").algbw
    write_topology(ring(3), tmp_path / "lab.json")
    for path in (tmp_path / "lab.json", str(tmp_path / "lab.json")):
        assert bound(path, "allgather") == bound(ring(3), "allgather")
    for name in ("lab", "torus"):
        (tmp_path / name).write_bytes((tmp_path / "lab.json").read_bytes())
        monkeypatch.chdir(tmp_path)
        assert bound(Path(name), "allgather").topology.num_ranks == 3
    assert bound("lab", "allgather").topology.num_ranks == 3
    assert topology("torus", shape="2x2").num_ranks == 4


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: topology("dgx-a100", boxs=2), "no option of dgx-a100 called 'boxs' (did you mean boxes?)"),
        (lambda: topology(ring(4), boxes=2), "there is no option 'boxes' of <Topology 'ring-4'"),
        (lambda: plan("dgx-a100", "allgather", boxes=2), "write plan(collopt.topology('dgx-a100', boxes=2), ...)"),
        (lambda: bound_sizes("ring", "allgather", [1], n=4), "bound_sizes(collopt.topology('ring', n=4), ...)"),
        (lambda: compare(ring(4), "allgather", n=4), "option of networks by name or file, not of <Topology 'ring-4'"),
        (lambda: sensitivity(ring(4), "allgather", stp=4), "sensitivity has no option 'stp' (did you mean step?)"),
        (lambda: bound(3, "allgather"), "the topology is 3; expected one such as"),  # type: ignore[call-overload]
        (lambda: bound(nx.cycle_graph(4), "allgather"), "edge ('0', '1') has no attribute 'bandwidth'"),
    ],
)
def test_other_networks_are_refused(call: Callable[[], object], message: str) -> None:
    """One sentence names what was wrong, and what may have been meant."""
    with pytest.raises(ColloptError) as refused:
        call()
    assert message in str(refused.value)


def test_shapes_are_sizes_or_one_sequence() -> None:
    """As for numpy's functions of shapes."""
    assert torus((3, 3)).digest == torus([3, 3]).digest == torus(3, 3).digest
    assert twisted_torus((2, 4)).digest == twisted_torus(2, 4).digest
