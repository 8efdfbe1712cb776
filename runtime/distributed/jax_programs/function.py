"""`jax_function`: a plan as a collective for `jax.shard_map`, in rounds of `jax.lax.ppermute`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from math import gcd
from typing import TYPE_CHECKING, Any, NamedTuple

from ....errors import MissingDependencyError, UnsupportedError
from ....support.validation import shown
from ...programs.checks import check_choice, check_counts
from ...programs.program import Program
from ..execution.execute import PlanLike, program_of
from ..rounds.batches import checked_rounds
from .tables import RowProgram, Rows, row_program

if TYPE_CHECKING:
    import jax

OPERATIONS = {"sum": "add", "prod": "multiply", "min": "minimum", "max": "maximum", "avg": "add"}
"""Functions of jax.numpy; an average is a sum that is divided at the end."""


def jax_function(
    plan: PlanLike | Program, axis_name: str | Sequence[str], *, op: str = "sum", tiled: bool = False, slices: int = 1
) -> Callable[[jax.Array], jax.Array]:
    """Turn a plan into a function for `jax.shard_map`, in place of JAX's own collective.

    Each round of the plan is a few calls of `jax.lax.ppermute`, which XLA runs on TPUs, GPUs and CPUs, and additions.
    The function can be compiled and differentiated like the collectives of `jax.lax`.

    Raises `MissingDependencyError` if JAX is not installed; `ProgramError` if the program is wrong; `UnsupportedError`
    if the plan's schedule cannot be lowered, or an argument is not understood.  The function raises the latter if the
    axis or the array do not fit the plan.

    Parameters
    ----------
    plan : Plan or Program
        Rank r is the device with ``jax.lax.axis_index(axis_name) == r``.
    axis_name : str or sequence of str
        Axes of the mesh; several count row by row, as in `jax.lax.axis_index`.
    op : {"sum", "prod", "min", "max", "avg"}
        What adding means.  Of no meaning to collectives that only move data.
    tiled : bool
        As in `jax.lax.all_gather` and `jax.lax.psum_scatter`: whether ranks divide the first dimension among them, or
        it is a dimension of its own, of one element per rank.  Plans with shards or parts of unequal sizes need True.
    slices : int
        Pieces of the data that follow each other through the network.  More pieces keep more links busy at once and
        take more rounds.

    Returns
    -------
    callable
        Takes one array, of the same shape on all ranks, and returns one of the same type.

        An allgather has the shapes of `jax.lax.all_gather`, a reduce-scatter those of `jax.lax.psum_scatter`, an
        all-to-all those of `jax.lax.all_to_all` along the first dimension.  Allreduce, broadcast and reduce keep the
        shape; a reduce returns zeros except on its root.

        With unequal sizes the first dimension is that of the rank with most.  Others have their data first, then what
        is ignored, or zeros.

    Notes
    -----
    Results differ between ranks as far as JAX can tell, so a `jax.shard_map` that returns one without its axis, such as
    ``out_specs=P()`` for an allreduce, needs ``check_vma=False``.

    Sums are computed in the array's own type, contribution by contribution, in the same order in every run.

    Examples
    --------
    >>> import collopt
    >>> plan = collopt.plan(collopt.topologies.ring(4, bandwidth=25), "allreduce")
    >>> total = collopt.runtime.jax_function(plan, "gpus")  # doctest: +SKIP
    >>> jax.shard_map(total, mesh=mesh, in_specs=P("gpus"), out_specs=P("gpus"))(gradients)  # doctest: +SKIP
    """
    lax = import_jax()[0].lax
    check_choice("op", op, OPERATIONS)
    check_counts({"slices": slices})
    if not isinstance(tiled, bool):
        raise UnsupportedError(f"tiled is {shown(tiled)}; expected True or False")
    program = program_of(plan)
    checked_rounds(program, slices)
    axes = _axes(axis_name)

    def collective(array: jax.Array) -> jax.Array:
        _check_array(program, array, op)
        if (devices := lax.axis_size(axes)) != program.num_ranks:
            raise UnsupportedError(f"axis {axes!r} has {devices} devices; the plan is for {program.num_ranks} ranks")
        result: jax.Array = _run(program, axes, array, op, tiled, slices)
        return result

    return collective


def _axes(axis_name: object) -> str | tuple[str, ...]:
    if isinstance(axis_name, str):
        return axis_name
    if not isinstance(axis_name, Sequence) or not all(isinstance(each, str) for each in axis_name):
        raise UnsupportedError(f"axis_name is {shown(axis_name)}; expected the name of an axis, or a tuple of names")
    return tuple(axis_name)


def _check_array(program: Program, array: Any, op: str) -> None:
    """Refuse what is no array of numbers, and sums of booleans, which `jax.lax.psum` counts as integers."""
    _, jnp = import_jax()
    if not hasattr(array, "dtype"):
        raise UnsupportedError(
            f"the {program.collective} is given {shown(type(array).__name__)}; expected an array: "
            "for a tree of arrays use jax.tree.map"
        )
    if array.dtype == jnp.bool_ and program.layout.reduces and op not in ("min", "max"):
        raise UnsupportedError(f"op {op!r} is not for booleans; count them as integers: array.astype(int)")
    if not (array.dtype == jnp.bool_ or jnp.issubdtype(array.dtype, jnp.number)):
        raise UnsupportedError(f"the array's type is {array.dtype}; expected numbers or booleans")


def import_jax() -> tuple[Any, Any]:
    """Import jax and jax.numpy, or raise `MissingDependencyError`, which says how to install them."""
    try:
        import jax
        import jax.numpy as jnp
    except ImportError as error:
        raise MissingDependencyError(
            f"running a plan with JAX needs jax ({error}); install it with: pip install 'collopt[jax]'"
        ) from error
    return jax, jnp


class _Units(NamedTuple):
    """Shards or parts in lowest terms: in all, in the largest input and output, chunks of each, and the largest."""

    total: int
    inputs: int
    outputs: int
    chunks: int
    largest: int

    @classmethod
    def of(cls, program: Program) -> _Units:
        layout = program.layout
        chunks = layout.chunks // sum(layout.parts)
        inputs, outputs = (
            max(sum(end - begin for begin, end in ranges(rank)) for rank in range(program.num_ranks)) // chunks
            for ranges in (lambda rank: [layout.input_range(rank)], layout.output_ranges)
        )
        return cls(sum(layout.parts), inputs, outputs, chunks, max(layout.parts))


def _run(program: Program, axes: Any, array: Any, op: str, tiled: bool, slices: int) -> Any:
    """Run a program on one array per rank."""
    _, jnp = import_jax()
    units = _Units.of(program)
    shape = _output_shape(units, array.shape, tiled, f"{program.collective} with tiled={tiled}")
    elements, most = array.size // units.inputs, units.chunks * slices
    # Rows are padded to one width unless shards differ, as padding would then move elements between them.
    width = -(-elements // most) if units.largest == 1 else elements // (gcd(elements, most) or 1)
    if not width:
        return jnp.zeros(shape, array.dtype)
    rows = -(-elements // width)
    inputs, outputs = units.inputs * rows, units.outputs * rows
    work = row_program(program, slices, units.total * rows, inputs, outputs)
    given = jnp.pad(array.reshape(units.inputs, elements), ((0, 0), (0, rows * width - elements)))
    memory = jnp.pad(given.reshape(inputs, width), ((0, work.size - inputs), (0, 0)))
    memory = _finish(work, memory, axes, getattr(jnp, OPERATIONS[op]))
    output = memory[work.output : work.output + outputs].reshape(units.outputs, rows * width)[:, :elements]
    if op == "avg" and program.layout.reduces:
        output = output / program.num_ranks
    return output.reshape(shape)


def _output_shape(units: _Units, shape: tuple[int, ...], tiled: bool, call: str) -> tuple[int, ...]:
    """Return the shape of the result, or refuse that of the array."""
    if units.inputs == units.outputs == 1:
        return shape
    if units.largest > 1 and not tiled:
        raise UnsupportedError(f"{call} has shards or parts of unequal sizes; expected tiled=True")
    if tiled and shape and shape[0] % units.inputs == 0:
        return (shape[0] // units.inputs * units.outputs, *shape[1:])
    if not tiled and units.inputs == 1:
        return (units.outputs, *shape)
    if not tiled and shape and shape[0] == units.inputs:
        return shape if units.outputs > 1 else shape[1:]
    wanted = f"a multiple of {units.inputs}" if tiled else str(units.inputs)
    raise UnsupportedError(f"{call} is given an array of shape {shape}; expected its first dimension to be {wanted}")


def _finish(work: RowProgram, memory: Any, axes: Any, add: Callable[[Any, Any], Any]) -> Any:
    """Run all steps; shapes: `memory` (rows, width)."""
    jax, jnp = import_jax()
    own = jnp.asarray(work.numbers)[jax.lax.axis_index(axes).astype(jnp.uint32)]
    for permutations, additions in work.steps:
        sent = _read(memory, [each.source for each in permutations], own)
        arrived = [
            jax.lax.ppermute(values, axes, each.pairs) if each.pairs else values
            for each, values in zip(permutations, sent, strict=True)
        ]
        memory = _written(memory, [each.target for each in permutations], own, arrived)
        for one, other, target in additions:
            memory = _written(memory, [target], own, [add(*_read(memory, [one, other], own))])
    return memory


def _read(memory: Any, tables: Sequence[Rows], own: Any) -> list[Any]:
    """Read this rank's rows by each table, and anything in place of those that it lacks."""
    jax, jnp = import_jax()
    apart = [rows for rows in tables if not rows.consecutive]
    ends = list(accumulate(rows.width for rows in apart))
    together = memory.at[_numbers(apart, own)].get(mode="clip") if apart else None
    parts = iter(jnp.split(together, ends[:-1]) if apart else ())
    return [
        jax.lax.dynamic_slice_in_dim(memory, own[rows.place], rows.width) if rows.consecutive else next(parts)
        for rows in tables
    ]


def _written(memory: Any, tables: Sequence[Rows], own: Any, values: Sequence[Any]) -> Any:
    """Return memory with this rank's rows replaced, which are different ones in each table."""
    jax, jnp = import_jax()
    for rows, new in zip(tables, values, strict=True):
        if rows.consecutive and rows.lengths is not None:
            mine = (jnp.arange(rows.width) < own[rows.lengths])[:, None]
            new = jnp.where(mine, new, _read(memory, [rows], own)[0])  # noqa: PLW2901 - the rest stays as it is.
        if rows.consecutive:
            memory = jax.lax.dynamic_update_slice_in_dim(memory, new, own[rows.place], 0)
    if apart := [(rows, new) for rows, new in zip(tables, values, strict=True) if not rows.consecutive]:
        together = jnp.concatenate([new for _, new in apart])
        memory = memory.at[_numbers([rows for rows, _ in apart], own)].set(together, mode="drop")
    return memory


def _numbers(tables: Sequence[Rows], own: Any) -> Any:
    """Return all of this rank's rows."""
    _, jnp = import_jax()
    return jnp.concatenate([own[rows.place : rows.place + rows.width] for rows in tables])
