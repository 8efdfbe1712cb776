"""`jax_function`: a plan as a collective for `jax.shard_map`, in rounds of `jax.lax.ppermute`.

A rank's memory is one array: rows of input, output, scratch and staging area.  All ranks do the same on rows that a
table has for each.  An edge coloring divides the pairs of a round into as few permutations as a rank has partners.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import accumulate, count
from math import gcd
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ...errors import MissingDependencyError, UnsupportedError
from ...support.validation import shown
from ..programs.program import Program, check_choice, check_counts
from .execute import PlanLike, program_of
from .rank_rounds import Piece, RankRounds, Sum, aligned_rounds, checked_rounds

if TYPE_CHECKING:
    import jax

Pair = tuple[int, int]
BEYOND = 2**31 - 1  # A row that no memory has

OPERATIONS = {"sum": "add", "prod": "multiply", "min": "minimum", "max": "maximum", "avg": "add"}
"""Functions of jax.numpy; an average is a sum that is divided at the end."""


class Rows(NamedTuple):
    """Rows of each rank's memory: from `place` on in its numbers are `width` rows, some of which may be `BEYOND`.

    If those of every rank are `consecutive`, it is the first, and at `lengths` how many, None if all have as many.
    """

    place: int
    width: int
    consecutive: bool
    lengths: int | None


class Permutation(NamedTuple):
    """Messages of which each rank sends and receives at most one; no pairs are copies on every rank."""

    pairs: tuple[Pair, ...]
    source: Rows
    target: Rows


class Addition(NamedTuple):
    """Sums ``target = one + other``, row by row."""

    one: Rows
    other: Rows
    target: Rows


class Step(NamedTuple):
    """A round: permutations, which all read memory before any writes to it, and additions one after the other."""

    permutations: tuple[Permutation, ...]
    additions: tuple[Addition, ...]


class RowProgram(NamedTuple):
    """What all ranks run."""

    steps: tuple[Step, ...]
    numbers: npt.NDArray[np.uint32]  # What each rank has in place of `Rows`, shape (ranks, any)
    output: int  # First row of the output
    size: int  # Rows of memory, with those that a slice of a fixed width may reach beyond the last


@lru_cache(maxsize=64)
def row_program(program: Program, slices: int, rows: int, inputs: int, outputs: int) -> RowProgram:
    """Write a checked program as one for all ranks, given `rows` in all, and in the largest input and output."""
    ranks = aligned_rounds(program, slices, rows)
    sizes = (inputs, outputs, max(work.scratch for work in ranks), max(work.staging for work in ranks))
    *begins, size = accumulate(sizes, initial=0)
    writer = _StepWriter(ranks, dict(zip(("input", "output", "scratch", "staging"), begins, strict=True)), size)
    rounds = range(len(ranks[0].rounds))
    steps = [Step(tuple(writer.permutations(number)), tuple(writer.additions(number))) for number in rounds]
    return RowProgram(tuple(filter(any, steps)), np.hstack(writer.numbers), begins[1], writer.size)


class _StepWriter:
    """Writes the rounds of all ranks as steps, and the numbers of their tables."""

    def __init__(self, ranks: Sequence[RankRounds], bases: Mapping[str, int], size: int) -> None:
        self.ranks = ranks
        self.bases = bases
        self.size = size
        self.numbers = [np.zeros((len(ranks), 1), dtype=np.uint32)]
        self.count = 1

    def permutations(self, number: int) -> Iterator[Permutation]:
        """Yield the copies and permutations of a round."""
        sources: dict[Pair, list[int]] = defaultdict(list)
        targets: dict[Pair, list[int]] = defaultdict(list)
        for rank, work in enumerate(self.ranks):
            # Both ends have the messages of a pair in the same order.
            for peer, is_send, piece in work.rounds[number].operations:
                rows = sources[rank, peer] if is_send else targets[peer, rank]
                rows += self._place(piece)
            for copy in work.rounds[number].copies:
                sources[rank, rank] += self._place(copy.source)
                targets[rank, rank] += self._place(copy.target)
        # Each color of pairs is a permutation; the longest pairs first, so that its messages are about equally long.
        pairs = sorted((pair for pair, rows in sources.items() if rows), key=lambda pair: -len(sources[pair]))
        moves: dict[int, list[Pair]] = defaultdict(list)
        for pair, color in edge_coloring(pair for pair in pairs if pair[0] != pair[1]).items():
            moves[color].append(pair)
        stays = [pair for pair in pairs if pair[0] == pair[1]]
        for group in (stays, *moves.values()):
            if group:
                source, target = (
                    self._rows({pair[end]: rows[pair] for pair in group}) for end, rows in enumerate((sources, targets))
                )
                yield Permutation(() if group is stays else tuple(group), source, target)

    def additions(self, number: int) -> Iterator[Addition]:
        """Yield the sums of a round in an order in which each comes after the sums that it reads."""
        levels: dict[int, list[dict[int, list[int]]]] = defaultdict(lambda: [defaultdict(list) for _ in Sum._fields])
        for rank, work in enumerate(self.ranks):
            last: dict[int, int] = {}
            for addition in work.rounds[number].sums:
                places = [self._place(piece) for piece in addition]
                touched = [row for rows in places for row in rows]
                if not touched:
                    continue
                level = 1 + max(last.get(row, -1) for row in touched)
                last |= dict.fromkeys(touched, level)
                for rows_by_rank, rows in zip(levels[level], places, strict=True):
                    rows_by_rank[rank] += rows
        for _, parts in sorted(levels.items()):
            yield Addition(*map(self._rows, parts))

    def _place(self, piece: Piece) -> range:
        return range(self.bases[piece.memory] + piece.begin, self.bases[piece.memory] + piece.end)

    def _rows(self, rows_by_rank: Mapping[int, Sequence[int]]) -> Rows:
        """Write the table of the rows of some ranks; others have none."""
        place, width = self.count, max(map(len, rows_by_rank.values()))
        if any(list(rows) != list(range(rows[0], rows[0] + len(rows))) for rows in rows_by_rank.values()):
            table = np.full((len(self.ranks), width), BEYOND, dtype=np.uint32)
            for rank, rows in rows_by_rank.items():
                table[rank, : len(rows)] = rows
            self._write(table)
            return Rows(place, width, False, None)
        begins = [rows[0] for rows in rows_by_rank.values()]
        self.size = max(self.size, max(begins) + width)
        firsts = [rows_by_rank[rank][0] if rank in rows_by_rank else begins[0] for rank in range(len(self.ranks))]
        lengths = [len(rows_by_rank.get(rank, ())) for rank in range(len(self.ranks))]
        self._write(np.array([firsts, lengths], dtype=np.uint32).T)
        return Rows(place, width, True, place + 1 if min(lengths) < width else None)

    def _write(self, table: npt.NDArray[np.uint32]) -> None:
        self.numbers.append(table)
        self.count += table.shape[1]


def edge_coloring(edges: Iterable[tuple[int, int]]) -> dict[tuple[int, int], int]:
    """Color a bipartite graph's edges, none of one color meeting, in as many colors as the largest degree (König).

    An edge gets a color a that its left vertex lacks.  If its right vertex lacks b instead, a and b change places on
    the path of these colors that starts there; it cannot end at the left vertex, which it would reach by color a.

    >>> edge_coloring([(0, 1), (1, 2), (2, 0), (0, 2)])
    {(0, 1): 0, (1, 2): 0, (2, 0): 0, (0, 2): 1}
    """
    colors: dict[tuple[int, int], int] = {}
    # The other end of the edge of a color, by vertex: left ones first, then right ones.
    ends: tuple[dict[tuple[int, int], int], ...] = ({}, {})
    for left, right in edges:
        here = next(color for color in count() if (left, color) not in ends[0])
        there = next(color for color in count() if (right, color) not in ends[1])
        path, vertex, side, color = [], right, 1, here
        while here != there and (vertex, color) in ends[side]:
            other = ends[side][vertex, color]
            path.append(((vertex, other) if side == 0 else (other, vertex), here + there - color))
            vertex, side, color = other, 1 - side, here + there - color
        for edge, _ in path:
            for side in (0, 1):
                ends[side].pop((edge[side], colors[edge]), None)
        for edge, color in [*path, ((left, right), here)]:
            colors[edge] = color
            for side in (0, 1):
                ends[side][edge[side], color] = edge[1 - side]
    return colors


def jax_function(
    plan: PlanLike | Program, axis_name: str | Sequence[str], *, op: str = "sum", tiled: bool = False, slices: int = 1
) -> Callable[[jax.Array], jax.Array]:
    """Turn a plan into a function for `jax.shard_map`, in place of JAX's own collective.

    Each round of the plan is a few calls of `jax.lax.ppermute` and additions.  The function can be compiled and
    differentiated like the collectives of `jax.lax`.

    Raises `MissingDependencyError` if JAX is not installed; `ProgramError` if the program is wrong; `UnsupportedError`
    if the plan's schedule cannot be lowered, or an argument is not understood, and in the function if the axis or the
    array do not fit the plan.

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
        As for `execute`.

    Returns
    -------
    callable
        Takes one array, of the same shape on all ranks, and returns one of the same type, with the shapes of
        `jax.lax.all_gather`, `jax.lax.psum_scatter` and `jax.lax.all_to_all` along the first dimension.  Allreduce,
        broadcast and reduce keep the shape; a reduce returns zeros except on its root.

        With unequal sizes the first dimension is that of the rank with most.  Other ranks have their data first, then
        zeros, or elements that are ignored.

    Notes
    -----
    A `jax.shard_map` that returns a result without its axis, such as ``out_specs=P()`` for an allreduce, needs
    ``check_vma=False``.  Sums are computed in the array's own type, in the same order in every run.

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
    if not isinstance(axis_name, Sequence) or not all(isinstance(name, str) for name in axis_name):
        raise UnsupportedError(f"axis_name is {shown(axis_name)}; expected the name of an axis, or a tuple of names")
    return tuple(axis_name)


def _check_array(program: Program, array: Any, op: str) -> None:
    """Refuse objects other than arrays of numbers, and sums of booleans, which `jax.lax.psum` counts as integers."""
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
    # Shapes: rows of a common width, and how many each rank has.
    units = _Units.of(program)
    shape = _output_shape(units, array.shape, tiled, f"{program.collective} with tiled={tiled}")
    elements, unit = array.size // units.inputs, units.chunks * slices
    # Rows are padded to one width unless shards differ, as padding would then move elements between them.
    width = -(-elements // unit) if units.largest == 1 else elements // (gcd(elements, unit) or 1)
    if not width:
        return jnp.zeros(shape, array.dtype)
    rows = -(-elements // width)
    inputs, outputs = units.inputs * rows, units.outputs * rows
    work = row_program(program, slices, units.total * rows, inputs, outputs)
    # Memory of a rank: its input, then rows for output, scratch and staging.
    parts = jnp.pad(array.reshape(units.inputs, elements), ((0, 0), (0, rows * width - elements)))
    memory = jnp.pad(parts.reshape(inputs, width), ((0, work.size - inputs), (0, 0)))
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
    expectation = f"a multiple of {units.inputs}" if tiled else str(units.inputs)
    raise UnsupportedError(
        f"{call} is given an array of shape {shape}; expected its first dimension to be {expectation}"
    )


def _finish(work: RowProgram, memory: Any, axes: Any, add: Callable[[Any, Any], Any]) -> Any:
    """Run all steps; shapes: `memory` (rows, width)."""
    jax, jnp = import_jax()
    own = jnp.asarray(work.numbers)[jax.lax.axis_index(axes).astype(jnp.uint32)]
    for permutations, additions in work.steps:
        sent = _read(memory, [permutation.source for permutation in permutations], own)
        arrived = [
            jax.lax.ppermute(values, axes, permutation.pairs) if permutation.pairs else values
            for permutation, values in zip(permutations, sent, strict=True)
        ]
        memory = _with_rows(memory, [permutation.target for permutation in permutations], own, arrived)
        for one, other, target in additions:
            memory = _with_rows(memory, [target], own, [add(*_read(memory, [one, other], own))])
    return memory


def _read(memory: Any, tables: Sequence[Rows], own: Any) -> list[Any]:
    """Read this rank's rows by each table; rows that it lacks are arbitrary."""
    jax, jnp = import_jax()
    scattered = [rows for rows in tables if not rows.consecutive]
    ends = list(accumulate(rows.width for rows in scattered))
    together = memory.at[_numbers(scattered, own)].get(mode="clip") if scattered else None
    parts = iter(jnp.split(together, ends[:-1]) if scattered else ())
    return [
        jax.lax.dynamic_slice_in_dim(memory, own[rows.place], rows.width) if rows.consecutive else next(parts)
        for rows in tables
    ]


def _with_rows(memory: Any, tables: Sequence[Rows], own: Any, values: Sequence[Any]) -> Any:
    """Return memory with this rank's rows replaced, which are different ones in each table."""
    jax, jnp = import_jax()
    for rows, new in zip(tables, values, strict=True):
        if rows.consecutive and rows.lengths is not None:
            mine = (jnp.arange(rows.width) < own[rows.lengths])[:, None]
            new = jnp.where(mine, new, _read(memory, [rows], own)[0])  # noqa: PLW2901 - the rest stays as it is.
        if rows.consecutive:
            memory = jax.lax.dynamic_update_slice_in_dim(memory, new, own[rows.place], 0)
    if scattered := [(rows, new) for rows, new in zip(tables, values, strict=True) if not rows.consecutive]:
        together = jnp.concatenate([new for _, new in scattered])
        memory = memory.at[_numbers([rows for rows, _ in scattered], own)].set(together, mode="drop")
    return memory


def _numbers(tables: Sequence[Rows], own: Any) -> Any:
    """Return all of this rank's rows."""
    _, jnp = import_jax()
    return jnp.concatenate([own[rows.place : rows.place + rows.width] for rows in tables])
