"""Trains a small network data-parallel with JAX, by a plan's allreduce and by JAX's own, and compares the losses.

Eight virtual devices of the CPU stand for a 2 x 4 torus, unless JAX finds eight real ones::

    python examples/train_with_jax.py

By a plan, gradients are added up in another order than by JAX, so losses agree to what float32 can tell, not to the
bit.
"""

from __future__ import annotations

import os
from collections.abc import Callable

os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=8")

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

import collopt
from collopt.runtime import jax_function
from collopt.topologies import torus

SHAPE = (2, 4)
AXES = ("x", "y")
STEPS = 8

Parameters = dict[str, jax.Array]
Mean = Callable[[jax.Array], jax.Array]


def loss(parameters: Parameters, inputs: jax.Array) -> jax.Array:
    """Mean squared error of two layers that are to add up their inputs."""
    hidden = jax.nn.relu(inputs @ parameters["first"])
    return jnp.mean((hidden @ parameters["second"] - inputs.sum(axis=1, keepdims=True)) ** 2)


def train(mean: Mean) -> list[float]:
    """Train with a function that averages over all devices; return the mean losses."""
    mesh = Mesh(np.array(jax.devices()[:8]).reshape(SHAPE), AXES)

    def step(parameters: Parameters, inputs: jax.Array) -> tuple[Parameters, jax.Array]:
        own = jax.value_and_grad(loss)(parameters, inputs)
        # One collective for everything: the loss and the gradients of all parameters, as one array.
        flat, restore = ravel_pytree(own)
        total, gradients = restore(mean(flat))
        return jax.tree.map(lambda value, gradient: value - 0.05 * gradient, parameters, gradients), total

    # Without check_vma, JAX adds up no gradients by itself.
    train_step = jax.jit(jax.shard_map(step, mesh=mesh, in_specs=(P(), P(AXES)), out_specs=(P(), P()), check_vma=False))
    first, second, *data = jax.random.split(jax.random.key(0), 2 + STEPS)
    parameters = {
        "first": jax.random.normal(first, (16, 64)) / 4,
        "second": jax.random.normal(second, (64, 1)) / 8,
    }
    losses = []
    for key in data:
        parameters, total = train_step(parameters, jax.random.normal(key, (8 * 64, 16)))
        losses.append(float(total))
    return losses


def main() -> None:
    """Print the losses."""
    plan = collopt.plan(torus(*SHAPE), "allreduce")
    ways: dict[str, Mean] = {
        "JAX": lambda array: jax.lax.pmean(array, AXES),
        "collopt": jax_function(plan, AXES, op="avg"),
    }
    losses = [train(mean) for mean in ways.values()]
    print(f"step{''.join(f'{name:>11}' for name in ways)}")
    for step, row in enumerate(zip(*losses, strict=True)):
        print(f"{step:4}{''.join(f'{value:11.6f}' for value in row)}")


if __name__ == "__main__":
    main()
