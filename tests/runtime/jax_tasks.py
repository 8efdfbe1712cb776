"""Plans beside JAX's own collectives on virtual devices of the CPU; a program of its own, as JAX reads flags once.

``python jax_tasks.py DEVICES TASK ...`` prints, as JSON, the names of the cases, each with whether it was right.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from typing import Any

# Tests run a program once, so they need not wait for a compiler that makes it fast.
os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={sys.argv[1]} --xla_backend_optimization_level=0"
os.environ["JAX_PLATFORMS"] = "cpu"

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import AxisType, Mesh
from jax.sharding import PartitionSpec as P

import collopt
from collopt.errors import ColloptError
from collopt.runtime import jax_function
from collopt.schedules import Collective, register_collective
from collopt.topologies import (
    Topology,
    dgx_h100,
    fat_tree,
    mi300x,
    rail,
    ring,
    torus,
)

RANKS = int(sys.argv[1])
ROOT = 3
NETWORKS: dict[int, tuple[Callable[[], Topology], ...]] = {
    8: (
        mi300x,
        lambda: rail(2, 4),
        lambda: torus(2, 4),
        lambda: ring(8, bidirectional=False),
    ),
    16: (lambda: dgx_h100(2), lambda: fat_tree(4)),
}


def one_root(axes: Any, array: jax.Array) -> jax.Array:
    """JAX's broadcast from the root; its own exists for GPUs only."""
    return lax.psum(jnp.where(lax.axis_index(axes) == ROOT, array, jnp.zeros_like(array)), axes)


OWN: dict[str, Callable[..., jax.Array]] = {
    "allgather": lambda axes, array, tiled: lax.all_gather(array, axes, tiled=tiled),
    "reduce_scatter": lambda axes, array, tiled: lax.psum_scatter(array, axes, tiled=tiled),
    "allreduce": lambda axes, array, _: lax.psum(array, axes),
    "broadcast": lambda axes, array, _: one_root(axes, array),
    "reduce": lambda axes, array, _: jnp.where(lax.axis_index(axes) == ROOT, lax.psum(array, axes), 0),
    "all_to_all": lambda axes, array, tiled: lax.all_to_all(array, axes, 0, 0, tiled=tiled),
}
"""JAX's own collectives."""


def planned(network: Topology, collective: Any, **options: Any) -> collopt.Plan:
    """Plan, with the root where there is one."""
    return collopt.plan(network, collective, **({"root": ROOT} if collective in ("broadcast", "reduce") else options))


def devices(*shape: int) -> Mesh:
    """All devices, in rank order."""
    return Mesh(np.array(jax.devices()).reshape(shape or RANKS), ("x", "y")[: len(shape) or 1])


def run(function: Callable[[jax.Array], Any], given: np.ndarray, mesh: Mesh | None = None) -> Any:
    """Call a function on a row per rank, and return a row per rank of each of its results."""
    mesh = mesh or devices()
    rows = P(mesh.axis_names)
    each = jax.shard_map(
        lambda row: jax.tree.map(lambda result: result[None], function(row[0])),
        mesh=mesh,
        in_specs=rows,
        out_specs=rows,
    )
    return jax.tree.map(np.asarray, jax.jit(each)(jax.device_put(given, jax.NamedSharding(mesh, rows))))


def numbers(shape: tuple[int, ...], dtype: Any = np.int32) -> np.ndarray:
    """Arbitrary numbers, integers such that sums wrap around."""
    made = np.random.default_rng(7).integers(-(2**31), 2**31, (RANKS, *shape))
    return made.astype(dtype) if np.issubdtype(dtype, np.integer) else (made / 2**31).astype(dtype)


def beside(plan: collopt.Plan, given: np.ndarray, *, tiled: bool = False, **options: Any) -> tuple[Any, Any]:
    """Results of a plan and of JAX's own collective, in one program."""
    name = str(plan.collective)
    function = jax_function(plan, "x", tiled=tiled, **options)
    return run(lambda array: (function(array), OWN[name]("x", array, tiled)), given)


def same(one: np.ndarray, other: np.ndarray) -> bool:
    """Whether two arrays are the same to the bit, shapes and types too."""
    return one.shape == other.shape and one.dtype == other.dtype and one.tobytes() == other.tobytes()


def close(one: np.ndarray, other: np.ndarray, tolerance: float = 1e-5) -> bool:
    """Whether two arrays differ by no more than the order of additions explains."""
    kind = one.shape == other.shape and one.dtype == other.dtype
    return kind and np.allclose(one.astype(complex), other.astype(complex), rtol=tolerance, atol=tolerance * RANKS)


def shape_of(collective: str) -> tuple[int, ...]:
    """Shape that no number of chunks divides."""
    return (RANKS, 13) if collective in ("reduce_scatter", "all_to_all") else (117,)


def matrix() -> dict[str, bool]:
    """Every second collective on one network, the others on the next, in integers."""
    return {
        f"{collective} on {network.name}": same(*beside(planned(network, collective), numbers(shape_of(collective))))
        for number, network in enumerate(make() for make in NETWORKS[RANKS])
        for collective in list(OWN)[number % 2 :: 2]
    }


def quick() -> dict[str, bool]:
    """Each collective once."""
    network = ring(RANKS, bidirectional=False)
    return {
        collective: same(*beside(planned(network, collective), numbers(shape_of(collective)))) for collective in OWN
    }


def kinds() -> dict[str, bool]:
    """Types, sizes, shapes, slices and operations."""
    network, results = rail(2, RANKS // 2), {}
    for dtype in (np.float32, jnp.bfloat16, np.complex64):
        one, other = beside(planned(network, "allreduce"), numbers((9, 7), dtype), slices=2)
        results[str(np.dtype(dtype))] = close(one, other, 0.05) if dtype is jnp.bfloat16 else close(one, other)
    for shape in ((), (0, 3), (2, 3, 5)):
        results[f"allreduce of {shape}"] = same(*beside(planned(network, "allreduce"), numbers(shape)))
        results[f"allgather of {shape}"] = same(*beside(planned(network, "allgather"), numbers(shape), slices=3))
    for collective in ("allgather", "reduce_scatter", "all_to_all"):
        given = numbers((2 * RANKS, 3))
        results[f"tiled {collective}"] = same(*beside(planned(network, collective), given, tiled=True, slices=2))
    own = {"max": lax.pmax, "min": lax.pmin, "avg": lax.pmean}
    for op, function in own.items():
        total = jax_function(planned(network, "allreduce"), "x", op=op)
        results[op] = close(*run(lambda row, f=function, t=total: (t(row), f(row, "x")), numbers((5,), np.float32)))  # type: ignore[misc]
    product = run(jax_function(planned(network, "allreduce"), "x", op="prod"), numbers((5,)))
    results["prod"] = same(product[0], np.prod(numbers((5,)), axis=0, dtype=np.int32))
    return results


def meshes() -> dict[str, bool]:
    """Two axes, by hand and by make_mesh, one of two axes, replicated results, and gradients."""
    network, results, both = torus(2, RANKS // 2), {}, ("x", "y")
    explicit = jax.make_mesh((2, RANKS // 2), both, axis_types=(AxisType.Explicit,) * 2)
    for name, mesh in (("by hand", devices(2, RANKS // 2)), ("explicit", explicit)):
        for collective in ("reduce_scatter", "allreduce"):
            given = numbers((2 * RANKS, 3), np.float32)
            ways = (
                jax_function(planned(network, collective), both, tiled=True),
                lambda row, collective=collective: OWN[collective](both, row, True),
            )
            results[f"{collective} {name}"] = close(*(run(way, given, mesh) for way in ways))
            results[f"gradient of {collective} {name}"] = close(*(gradient(way, given, mesh) for way in ways))
    columns = jax_function(planned(ring(RANKS // 2), "allreduce"), "y")
    totals = run(columns, numbers((6,)), devices(2, RANKS // 2))
    rows = numbers((6,)).reshape(2, RANKS // 2, 6).sum(axis=1, dtype=np.int32)
    results["one axis of two"] = same(totals, np.repeat(rows, RANKS // 2, axis=0))
    replicated = jax.shard_map(
        jax_function(planned(ring(RANKS), "allreduce"), "x"),
        mesh=devices(), in_specs=P(), out_specs=P(), check_vma=False,
    )  # fmt: skip
    results["replicated"] = same(np.asarray(jax.jit(replicated)(jnp.arange(5))), np.arange(5, dtype=np.int32) * RANKS)
    return results


def gradient(function: Callable[[jax.Array], jax.Array], given: np.ndarray, mesh: Mesh) -> np.ndarray:
    """Gradient of a weighted sum of the results of all ranks."""

    def weighted(row: jax.Array) -> jax.Array:
        result = function(row)
        return (jnp.cos(jnp.arange(result.size)).reshape(result.shape) * result).sum() * (
            1 + lax.axis_index(mesh.axis_names)
        )

    return run(jax.grad(weighted), given, mesh)


def unequal() -> dict[str, bool]:
    """Shards of several weights, an all-to-allv, and a collective of a user's own, against numpy."""
    weights = [1 + rank % 3 for rank in range(RANKS)]
    ends = np.cumsum(weights) * 4
    given, network = numbers((12, 2)), ring(RANKS)
    gathered = run(jax_function(planned(network, "allgather", weights=weights), "x", tiled=True, slices=2), given)
    wanted = np.concatenate([row[: 4 * weight] for row, weight in zip(given, weights, strict=True)])
    results = {"allgather": all(same(row, wanted) for row in gathered)}
    given = numbers((int(ends[-1]), 2))
    scattered = run(jax_function(planned(network, "reduce_scatter", weights=weights), "x", tiled=True), given)
    total = given.sum(axis=0, dtype=np.int32)
    results["reduce_scatter"] = all(
        same(row[: 4 * weight], total[end - 4 * weight : end]) and not row[4 * weight :].any()
        for row, weight, end in zip(scattered, weights, ends.tolist(), strict=True)
    )
    traffic = np.add.outer(np.arange(RANKS), np.arange(RANKS)) % 4
    results["all_to_allv"] = exchanged(planned(network, "all_to_allv", traffic=traffic), traffic, 3)
    shift = register_collective(Collective("shift", "pairs", (), "parts", "parts", traffic=from_left))
    results["shift"] = exchanged(planned(network, shift), from_left(RANKS), 5)
    return results


def from_left(ranks: int) -> np.ndarray:
    """A part from each rank for the next."""
    return np.roll(np.eye(ranks, dtype=int), 1, axis=1)


def exchanged(plan: collopt.Plan, traffic: np.ndarray, unit: int) -> bool:
    """Whether every rank gets its part of what each has."""
    given = numbers((int(traffic.sum(axis=1).max()) * unit,))
    found = run(jax_function(plan, "x", tiled=True), given)
    begins = (np.cumsum(traffic, axis=1) - traffic) * unit
    wanted = [
        np.concatenate([given[peer, begins[peer, rank] :][: unit * traffic[peer, rank]] for peer in range(RANKS)])
        for rank in range(RANKS)
    ]
    return all(same(row[: len(part)], part) for row, part in zip(found, wanted, strict=True))


def refusals() -> dict[str, str]:
    """Messages for axes and arrays that do not fit."""
    network = ring(RANKS, bidirectional=False)
    gather, scatter = planned(network, "allgather"), planned(network, "reduce_scatter")
    uneven = planned(network, "allgather", weights=[2, *[1] * (RANKS - 1)])
    cases = {
        "axis": (planned(ring(RANKS // 2), "allreduce"), {}, (5,)),
        "first dimension": (scatter, {}, (RANKS + 1, 2)),
        "tiled": (scatter, {"tiled": True}, (RANKS + 1, 2)),
        "scalar": (gather, {"tiled": True}, ()),
        "uneven": (uneven, {}, (4,)),
    }  # fmt: skip
    return {name: message(plan, options, shape) for name, (plan, options, shape) in cases.items()}


def message(plan: collopt.Plan, options: dict[str, Any], shape: tuple[int, ...]) -> str:
    """Message of the exception of a call."""
    try:
        run(jax_function(plan, "x", **options), numbers(shape))
    except ColloptError as error:
        return str(error)
    return ""


if __name__ == "__main__":
    tasks = {task.__name__: task for task in (matrix, quick, kinds, meshes, unequal, refusals)}
    print(json.dumps({f"{name}: {case}": right for name in sys.argv[2:] for case, right in tasks[name]().items()}))
