"""The code that registers plans with MSCCL++ selects them for the calls that they are for, and no others."""

from __future__ import annotations

import json
import runpy
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar

import pytest
from mscclpp_plans import TWO_BOXES, small_document

from collopt.errors import UnsupportedError
from collopt.runtime.mscclpp.export import write_registration

SIZE, START = 3 * 2**16, 2**20


class ExecutionPlan:
    """Has the signature of ``CppExecutionPlan`` (``executor_py.cpp``, line 21): a text and an integer."""

    def __init__(self, planPath: str, rank: int) -> None:
        assert type(planPath) is str
        assert type(rank) is int
        document = json.loads(Path(planPath).read_text())
        self.name, self.collective = document["name"], document["collective"]


class CppDslAlgorithm:
    """What a selector gets and returns; its name is that of the plan, not `id` (``algorithm.cc``, line 149)."""

    def __init__(self, id: str, plan: ExecutionPlan) -> None:  # noqa: A002
        assert type(id) is str
        assert type(plan) is ExecutionPlan
        self.name, self.collective = plan.name, plan.collective


class Algorithm:
    """Has the signature of ``algorithm.py``, line 62; what it wraps is no attribute of its own."""

    def __init__(
        self,
        id: Any = None,  # noqa: A002
        execution_plan: Any = None,
        native_handle: Any = None,
        tags: Any = None,
        constraint: Any = None,
    ) -> None:
        assert (native_handle, tags, constraint) == (None, None, None)
        self._algorithm = CppDslAlgorithm(id, execution_plan)


class Builder:
    """One object, as ``algorithm_collection_builder.py`` has it, from which each communicator gets a collection."""

    added: ClassVar[list[CppDslAlgorithm]] = []
    selector: Any = None

    def add_algorithm_builder(self, algorithm_builder: Algorithm) -> None:
        """Register an algorithm (line 34)."""
        assert type(algorithm_builder) is Algorithm
        self.added.append(algorithm_builder._algorithm)

    def set_algorithm_selector(self, selector: Any) -> None:
        """Take the function that selects one of them (line 44)."""
        Builder.selector = staticmethod(selector)

    @classmethod
    def select(cls, call: Request) -> CppDslAlgorithm | None:
        """Ask the selector as ``algorithm.cc`` does, line 104: all that is registered, then the call."""
        known: dict[str, dict[str, CppDslAlgorithm]] = {}
        for each in cls.added:
            known.setdefault(each.collective, {})[each.name] = each
        found = cls.selector(known, call)
        assert found is None or type(found) is CppDslAlgorithm
        return found  # type: ignore[no-any-return]


@dataclass(frozen=True, slots=True)
class Request:
    """What ``CppCollectiveRequest`` shows (``algorithm.cpp``, line 111), all read-only."""

    world_size: int
    n_ranks_per_node: int
    rank: int
    input_buffer: int
    output_buffer: int
    message_size: int
    collective: str
    dtype: object
    hints: dict[str, list[int]]
    stream: int = 0


@pytest.fixture
def registered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Run the code for four plans; their names by a label."""
    module, extension = ModuleType("mscclpp"), ModuleType("mscclpp.ext")
    kinds = SimpleNamespace(**{name: name for name in ("float16", "bfloat16", "float32", "int32", "uint32", "uint8")})
    vars(module).update(DataType=kinds, Algorithm=Algorithm, ExecutionPlan=ExecutionPlan)
    vars(extension).update(AlgorithmCollectionBuilder=Builder)
    monkeypatch.setitem(sys.modules, "mscclpp", module)
    monkeypatch.setitem(sys.modules, "mscclpp.ext", extension)
    monkeypatch.setattr(Builder, "added", [])
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


def request(collective: str, **changes: Any) -> Request:
    """Return a call of rank 1 of 4 in boxes of 2, out of place unless changed."""
    call = {
        "collective": collective, "world_size": 4, "n_ranks_per_node": 2, "rank": 1, "message_size": SIZE,
        "input_buffer": START, "output_buffer": 2 * START, "dtype": "float32", "hints": {},
    }  # fmt: skip
    return Request(**call | changes)


def selected(call: Request) -> str | None:
    """Name of the plan that is selected for a call."""
    found = Builder.select(call)
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
        request("allgather", dtype="uint8"),
        request("broadcast", output_buffer=START, hints={"root": [2]}),
    ],
)
def test_other_calls_get_none(registered: dict[str, str], call: Request) -> None:
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
