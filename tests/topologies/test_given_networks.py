"""Networks that functions take: topologies, networkx graphs, names and files."""

from collections.abc import Callable
from pathlib import Path

import networkx as nx
import pytest

from collopt import bound, bound_sizes, compare, plan, sensitivity
from collopt.errors import ColloptError
from collopt.topologies import dgx_a100, ring, torus, twisted_torus, write_topology


def square() -> nx.Graph:
    """Ring of four nodes."""
    graph = nx.cycle_graph(4)
    nx.set_edge_attributes(graph, 10, "bandwidth")
    return graph


def test_each_function_takes_names_with_options() -> None:
    """They mean what the builder returns."""
    boxes = dgx_a100(boxes=2)
    assert plan("dgx-a100", "allgather", boxes=2).topology.digest == boxes.digest
    assert bound("dgx_a100", "allgather", boxes=2) == bound(boxes, "allgather")
    sizes = bound_sizes("dgx-a100", "allgather", ["1M"], boxes=2)
    assert sizes == bound_sizes(boxes, "allgather", ["1M"]) == [bound("dgx-a100", "allgather", size="1M", boxes="2")]
    links = sensitivity("torus", "allgather", shape=(2, 3))
    assert links.equals(sensitivity(torus(2, 3), "allgather"))
    table = compare("ring", "allgather", planners=["ring"], bounds=["forestcoll"], n=5)
    assert table["algbw_exact"].tolist() == [plan(ring(5), "allgather").algbw] * 2


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
    assert bound("torus", "allgather", shape="2x2").topology.num_ranks == 4


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: plan("dgx-a10", "allgather"), "no topology called 'dgx-a10' (did you mean dgx-a100"),
        (lambda: plan("dgx-a100", "allgather", boxs=2), "no option of dgx-a100 called 'boxs' (did you mean boxes?)"),
        (lambda: plan(ring(4), "allgather", trees_per_rot=1), "'trees_per_rot' (did you mean trees_per_root?)"),
        (lambda: bound(square(), "allgather", boxes=2), "there is no option 'boxes'; those of a network go with"),
        (lambda: bound("gone/lab.json", "allgather"), "gone/lab.json does not exist"),
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
