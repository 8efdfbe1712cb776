"""Demands: their reading, joining and files, and what is refused."""

import copy
import json
import pickle
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from collopt import Demands, Item
from collopt.errors import BoundError, FileFormatError, UnsupportedError
from collopt.topologies import Topology, ring

PAIR = [("top", "1/2", ["gpu0"], ["gpu2", "gpu3"]), ("low", "1/4", ["gpu1"], ["gpu2"])]


def test_sizes_are_whole_numbers_of_one_unit() -> None:
    """Sizes are exact, given as numbers, text or bytes."""
    demands = Demands(PAIR)
    assert (demands.unit, demands.total_weight) == (Fraction(1, 4), 3)
    assert Demands([("a", "1K", ["x"], ["y"]), ("b", 512, ["y"], ["x"])]).unit == 512


def test_equal_items_are_one_group_in_the_order_of_layers() -> None:
    """Items with the same ends and layer are planned as one, earlier layers first."""
    items = [Item(name, 1, ["gpu0"], ["gpu1"], layer) for name, layer in (("late", 2), ("one", 1), ("two", 1))]
    assert [group[3:] for group in Demands(items).groups] == [(1, (1, 2)), (2, (0,))]
    items = [Item("late", 1, ["gpu0"], ["gpu1"]), *PAIR, Item("early", 2, ["gpu0"], ["gpu1"])]
    (_, _, both) = sorted(Demands(items).groups, key=lambda group: len(group.items))
    assert both == (12, ("gpu0",), ("gpu1",), 0, (0, 3))


def test_ranks_that_have_an_item_need_nothing() -> None:
    """Sources among the destinations are left out, and items that nobody else needs with them."""
    demands = Demands([("a", 1, ["gpu0", "gpu1"], ["gpu0", "gpu2"]), ("b", 5, ["gpu0"], ["gpu0"])])
    assert demands.ends(ring(4)) == (((0, 1), (2,)),)
    assert demands.total_weight == 1


def test_files_and_copies_are_the_same_demands(tmp_path: Path) -> None:
    """Demands survive JSON, files, copies and pickles."""
    demands = Demands([*PAIR, Item("x", 3, ["gpu0"], ["gpu1"], layer=4)])
    demands.save(tmp_path / "demands.json")
    again = [Demands.load(tmp_path / "demands.json"), Demands.from_json(json.loads(json.dumps(demands.to_json())))]
    for other in (*again, copy.deepcopy(demands), pickle.loads(pickle.dumps(demands))):
        assert other == demands
        assert hash(other) == hash(demands)
    assert Demands(PAIR) != demands


@pytest.mark.parametrize(
    ("items", "named"),
    [
        ([("a", 1, [], ["y"])], "a"),
        ([("a", 0, ["x"], ["y"])], "a"),
        ([("a", "1.5 lumps", ["x"], ["y"])], "a"),
        ([("a", True, ["x"], ["y"])], "a"),
        ([("a", 1, ["x", "x"], ["y"])], "x"),
        ([("a", 1, "x", ["y"])], "a"),
        ([("a", 1, [1.5], ["y"])], "1.5"),
        ([("a", 1, ["x"], ["y"]), ("a", 2, ["x"], ["y"])], "a"),
        ([("", 1, ["x"], ["y"])], "name"),
        ([("a", 1, ["x"])], "a"),
        ([("a", 1, ["x"], ["y"], -1)], "layer"),
        ([("a", 1, ["x"], ["x"])], "needs"),
        ([("a", 2**60, ["x"], ["y"]), ("b", 1, ["x"], ["y"])], "2\\^53"),
        ([("a", 1, ["x"], ["y"]), ("b", "1/999999999989", ["x"], ["y"]), ("c", 10**6, ["x"], ["y"])], "2\\^53"),
        (7, "7"),
        ("text", "text"),
        ([], "needs"),
    ],
)
def test_unusable_items_are_refused(items: Any, named: str) -> None:
    """One error names what is wrong."""
    with pytest.raises(UnsupportedError, match=named):
        Demands(items)


def test_ranks_have_to_be_there_and_in_reach() -> None:
    """Unknown ranks, and destinations that no source reaches, are refused on a topology."""
    with pytest.raises(UnsupportedError, match="gpu9"):
        Demands([("a", 1, ["gpu9"], ["gpu1"])]).ends(ring(4))
    with pytest.raises(UnsupportedError, match="'idle' names 'gpu9'"):  # Also where nothing has to move
        Demands([("a", 1, ["gpu0"], ["gpu1"]), ("idle", 1, ["gpu0", "gpu9"], ["gpu0"])]).ends(ring(4))
    one_way = Topology.from_links([("a", "b", 1), ("c", "b", 1), ("c", "a", 1)], compute="abc")
    with pytest.raises(BoundError, match="'c'"):
        Demands([("x", 1, ["a", "b"], ["c"])]).ends(one_way)
    assert Demands([("x", 1, ["a", "c"], ["b"])]).ends(one_way)


@pytest.mark.parametrize(
    "change",
    [
        {"format": "collopt-plan"},
        {"version": 2},
        {"items": {}},
        {"items": [{"name": "a"}]},
        {"items": [[]]},
        {"items": []},
        {"more": 1},
        {"items": [{"name": "a", "size": "1", "sources": ["x"], "destinations": ["y"], "color": 1}]},
        {"items": [{"name": "a", "size": "-1", "sources": ["x"], "destinations": ["y"]}]},
        {"items": [{"name": "a", "size": "1", "sources": 5, "destinations": ["y"]}]},
    ],
)
def test_damaged_files_are_refused(change: dict[str, Any], tmp_path: Path) -> None:
    """A file that is not of the form is refused with its name."""
    path = tmp_path / "broken.json"
    path.write_text(json.dumps({**Demands(PAIR).to_json(), **change}))
    with pytest.raises(FileFormatError, match=r"broken\.json"):
        Demands.load(path)
