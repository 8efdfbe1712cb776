"""The code that registers plans with MSCCL++ selects them for the calls that they are for, and no others."""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar

import pytest
from mscclpp_plans import TWO_BOXES, small_document

from collopt.errors import UnsupportedError
from collopt.runtime.mscclpp.registration import write_registration

SIZE, START = 3 * 2**16, 2**20


class Builder:
    """Stands in for MSCCL++'s, which has what is registered until a communicator is made."""

    known: ClassVar[dict[str, dict[str, Any]]] = {}
    selector: Any = None

    def add_algorithm_builder(self, algorithm: Any) -> None:
        """Register an algorithm by its collective and name."""
        self.known.setdefault(algorithm.collective, {})[algorithm.name] = algorithm

    def set_algorithm_selector(self, selector: Any) -> None:
        """Take the function that selects one of them."""
        Builder.selector = staticmethod(selector)


class Algorithm:
    """Has the name and the collective of its plan, as a DslAlgorithm of MSCCL++."""

    def __init__(self, id: str, execution_plan: Any) -> None:  # noqa: A002
        self.name, self.collective = execution_plan["name"], execution_plan["collective"]


@pytest.fixture
def registered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Run the code for four plans; their names by a label."""
    module, extension = ModuleType("mscclpp"), ModuleType("mscclpp.ext")
    kinds = SimpleNamespace(**{name: name for name in ("float16", "bfloat16", "float32", "int32", "uint32")})
    vars(module).update(
        DataType=kinds, Algorithm=Algorithm, ExecutionPlan=lambda path, rank: json.loads(Path(path).read_text())
    )
    vars(extension).update(AlgorithmCollectionBuilder=Builder)
    monkeypatch.setitem(sys.modules, "mscclpp", module)
    monkeypatch.setitem(sys.modules, "mscclpp.ext", extension)
    monkeypatch.setattr(Builder, "known", {})
    (tmp_path / "plans").mkdir()
    names = {}
    for collective, placement in (
        ("allgather", "out-of-place"),
        ("allgather", "in-place"),
        ("reduce_scatter", "in-place"),
        ("broadcast", "in-place"),
    ):
        document = small_document(collective, boxes=TWO_BOXES, placement=placement, slice_bytes=None)
        (tmp_path / "plans" / f"{collective}-{placement}.json").write_text(json.dumps(document))
        names[f"{collective} {placement}"] = document["name"]
    write_registration(sorted((tmp_path / "plans").iterdir()), tmp_path / "register.py")
    runpy.run_path(str(tmp_path / "register.py"))["register"](1)
    return names


def request(collective: str, **changes: Any) -> SimpleNamespace:
    """Return a call of rank 1 of 4 in boxes of 2, out of place unless changed."""
    call = {
        "collective": collective, "world_size": 4, "n_ranks_per_node": 2, "rank": 1, "message_size": SIZE,
        "input_buffer": START, "output_buffer": 2 * START, "dtype": "float32", "hints": {},
    }  # fmt: skip
    return SimpleNamespace(**call | changes)


def selected(call: SimpleNamespace) -> str | None:
    """Name of the plan that is selected for a call."""
    found = Builder.selector(Builder.known, call)
    return found and found.name


def test_calls_get_the_plan_for_their_placement(registered: dict[str, str]) -> None:
    """In place, the input of an allgather and the output of a reduce-scatter are the shard of the rank."""
    shard = SIZE // 4
    assert selected(request("allgather")) == registered["allgather out-of-place"]
    call = request("allgather", message_size=shard, input_buffer=START + shard, output_buffer=START)
    assert selected(call) == registered["allgather in-place"]
    call = request("reducescatter", input_buffer=START, output_buffer=START + shard)
    assert selected(call) == registered["reduce_scatter in-place"]
    call = request("broadcast", output_buffer=START, hints={"root": [1]})
    assert selected(call) == registered["broadcast in-place"]


@pytest.mark.parametrize(
    "call",
    [
        request("allreduce"),
        request("reducescatter"),
        request("allgather", world_size=8),
        request("allgather", n_ranks_per_node=3),
        request("allgather", message_size=SIZE + 8),
        request("allgather", message_size=0),
        request("allgather", message_size=2**40),
        request("allgather", input_buffer=START + 8),
        request("allgather", dtype="float64"),
        request("broadcast", output_buffer=START, hints={"root": [2]}),
    ],
)
def test_other_calls_get_none(registered: dict[str, str], call: SimpleNamespace) -> None:
    """MSCCL++ and NCCL decide then."""
    assert registered
    assert selected(call) is None


def test_what_cannot_be_registered_is_refused(tmp_path: Path) -> None:
    """0.8 has no registration, 0.9 cannot call the selector, and names are keys."""
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(small_document("broadcast", slice_bytes=None)))
    for version in ("0.8.0", "0.9.0"):
        with pytest.raises(UnsupportedError, match=f"{version} takes no selector written in Python"):
            write_registration([path], tmp_path / "register.py", version=version)
    with pytest.raises(UnsupportedError, match="of another plan; names must be unique"):
        write_registration([path, path], tmp_path / "register.py")
    with pytest.raises(UnsupportedError, match="there are no plans"):
        write_registration([], tmp_path / "register.py")
