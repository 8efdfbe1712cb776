"""The programs of demands: figures by hand, switches, deadlines and trees."""

import numpy as np
import pytest

import collopt
from collopt import Demands, Topology
from collopt.errors import UnsupportedError
from collopt.formulations import multicast
from collopt.topologies import ring


def rate(topology: Topology, *items: tuple[object, ...]) -> object:
    """Solve the program of shares and flows."""
    return collopt.solve(multicast.build(topology, Demands(list(items)))).exact.objective


def test_both_ways_round_a_ring_carry_one_item() -> None:
    """A ring has two ways to every rank, and copies are free within a share."""
    network = ring(4, bandwidth=10)
    assert rate(network, ("x", 1, ["gpu0"], ["gpu1", "gpu2", "gpu3"])) == 20
    assert rate(network, ("x", 1, ["gpu0"], ["gpu2"]), ("y", 1, ["gpu2"], ["gpu0"])) == 20
    assert rate(network, ("x", 1, ["gpu0", "gpu2"], ["gpu1"])) == 20


@pytest.mark.parametrize(("able", "expected"), [(True, 6), (False, 3)])
def test_a_switch_saves_bandwidth_only_if_it_copies(able: bool, expected: int) -> None:
    """Without multicast both copies leave the sender, or come back to the switch from a receiver."""
    star = Topology.from_links(
        [("a", "s", 6), ("s", "b", 6), ("s", "c", 6)], compute="abc", switches="s", multicast="s" if able else ""
    )
    assert rate(star, ("x", 1, ["a"], ["b", "c"])) == expected


def test_a_deadline_is_a_constraint() -> None:
    """An item that has to be fast slows down the other on a common link."""
    line = Topology.from_links([("a", "b", 10)], compute="ab")
    model = multicast.build(
        line, Demands([("x", 1, ["a"], ["b"]), ("y", 1, ["b", "a"], ["a"]), ("z", 3, ["a"], ["b"])])
    )
    (group_rate,) = (model.variables.group_rate,)
    assert len(group_rate) == 1  # equal ends, and an item that nobody needs
    model.constrain("deadline", [(group_rate[0], 1)], upper=8)
    assert collopt.solve(model).objective == 2


def test_trees_share_links_with_what_comes_before() -> None:
    """Loads per unit of weight take their part of every link."""
    model = multicast.build_packing([10.0, 10.0], [1], loads=[1.0, 0.0])
    model.add_trees([0, 0], [np.array([1, 0]), np.array([0, 1])])
    assert collopt.solve(model).exact.objective == 10
    with pytest.raises(UnsupportedError):
        multicast.build_packing([], [1])


def test_other_arguments_are_refused() -> None:
    """The program needs demands."""
    with pytest.raises(UnsupportedError, match="Demands"):
        multicast.build(ring(4), "allgather")  # type: ignore[arg-type]
