"""Plans as functions of JAX, on virtual devices of the CPU, beside JAX's own collectives."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import pytest

import collopt
from collopt.errors import MissingDependencyError, UnsupportedError
from collopt.runtime import jax_function
from collopt.topologies import ring

TASKS = str(Path(__file__).with_name("jax_tasks.py"))
needs_jax = pytest.mark.skipif(find_spec("jax") is None, reason="JAX is not installed")


def run(devices: int, *tasks: str) -> dict[str, object]:
    """Run tasks on so many devices in a process of their own, and return their answers."""
    done = subprocess.run(
        [sys.executable, TASKS, str(devices), *tasks], capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr
    answers: dict[str, object] = json.loads(done.stdout)
    return answers


def wrong(devices: int, *tasks: str, cases: int) -> list[str]:
    """Names of the cases that were not right, of as many as there must be."""
    answers = run(devices, *tasks)
    assert len(answers) == cases
    return [name for name, right in answers.items() if right is not True]


@needs_jax
def test_each_collective_is_that_of_jax_and_misfits_are_refused() -> None:
    """Integers agree to the bit, and messages have the expected shape."""
    answers = run(8, "quick", "refusals")
    messages = {name.removeprefix("refusals: "): text for name, text in answers.items() if name.startswith("ref")}
    assert [name for name, right in answers.items() if name.startswith("quick") and right is not True] == []
    assert len(answers) == 6 + len(messages)
    assert messages == {
        "axis": "axis 'x' has 8 devices; the plan is for 4 ranks",
        "first dimension": "reduce_scatter with tiled=False is given an array of shape (9, 2); expected its first "
        "dimension to be 8",
        "tiled": "reduce_scatter with tiled=True is given an array of shape (9, 2); expected its first dimension to be "
        "a multiple of 8",
        "scalar": "allgather with tiled=True is given an array of shape (); expected its first dimension to be a "
        "multiple of 1",
        "uneven": "allgather with tiled=False has shards or parts of unequal sizes; expected tiled=True",
    }


@needs_jax
@pytest.mark.slow
@pytest.mark.parametrize(("devices", "networks"), [(8, 4), (16, 2)])
def test_plans_for_several_networks_are_the_collectives_of_jax(devices: int, networks: int) -> None:
    """Each network runs three collectives; integers agree to the bit."""
    assert wrong(devices, "matrix", cases=3 * networks) == []


@needs_jax
@pytest.mark.slow
def test_types_sizes_meshes_and_gradients_are_those_of_jax() -> None:
    """Slices, operations, tiled arrays, several axes and shards of unequal sizes agree too."""
    assert wrong(8, "kinds", "meshes", "unequal", cases=16 + 10 + 4) == []


def test_a_missing_jax_is_named_with_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """The message has the command that installs it."""
    monkeypatch.setitem(sys.modules, "jax", None)
    with pytest.raises(MissingDependencyError, match=r"needs jax .*pip install 'collopt\[jax\]'"):
        jax_function(collopt.plan(ring(4), "allreduce"), "gpus")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"op": "mean"}, "op is 'mean'; expected one of sum, prod, min, max, avg"),
        ({"slices": 0}, "slices is 0; expected a whole number of at least 1"),
        ({"tiled": 1}, "tiled is 1; expected True or False"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, object], message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The refusal comes before JAX is called."""
    monkeypatch.setitem(sys.modules, "jax", SimpleNamespace(lax=None, numpy=None))
    monkeypatch.setitem(sys.modules, "jax.numpy", SimpleNamespace())
    with pytest.raises(UnsupportedError, match=message):
        jax_function(collopt.plan(ring(4), "allreduce"), "gpus", **options)  # type: ignore[arg-type]


@needs_jax
def test_what_is_no_array_of_numbers_is_refused() -> None:
    """Trees of arrays, sums of booleans, keys of random numbers and wrong axes are refused."""
    import jax

    plan = collopt.plan(ring(4), "allreduce")
    total = jax_function(plan, "gpus")
    for given, message in [
        ({"weights": 1}, r"given 'dict'; expected an array.*jax\.tree\.map"),
        (jax.numpy.ones(4, bool), "op 'sum' is not for booleans"),
        (jax.random.key(0), "expected numbers or booleans"),
    ]:
        with pytest.raises(UnsupportedError, match=message):
            total(given)
    with pytest.raises(UnsupportedError, match="axis_name is 3; expected the name of an axis"):
        jax_function(plan, 3)  # type: ignore[arg-type]
