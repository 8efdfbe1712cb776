"""What moves between two shardings, and the messages that move it; without processes."""

from __future__ import annotations

import itertools
import random
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collopt.errors import ColloptError, ProgramError, UnsupportedError
from collopt.runtime import (
    Mesh,
    Replicate,
    Resharding,
    Shard,
    Sharding,
    cache_sharding,
    compare_shardings,
    expert_shardings,
)
from collopt.runtime.resharding.moves import END, FIRST, MAX_OPERATIONS, direct_copies, planned_copies, shares, sliced
from collopt.runtime.resharding.transport import RankRoute
from sample_sizes import examples

TWO = Mesh(range(2))


def random_sharding(chance: random.Random, dims: int) -> Sharding:
    """Any placements on a mesh of some of eight ranks."""
    shape = chance.choice([(1,), (3,), (4,), (2, 2), (2, 3), (2, 2, 2)])
    ranks = chance.sample(range(8), int(np.prod(shape)))
    choices = [Replicate(), *(Shard(dim) for dim in range(-dims, dims))]
    return Sharding(Mesh(np.reshape(ranks, shape)), [chance.choice(choices) for _ in shape])


def random_moves(seed: int) -> Resharding:
    """Some small tensors between random shardings."""
    chance = random.Random(seed)
    shapes = [tuple(chance.randrange(6) for _ in range(chance.randrange(4))) for _ in range(4)]
    tensors = {f"t{number}": (shape, chance.choice((1, 2, 8))) for number, shape in enumerate(shapes)}
    sides = [
        {name: random_sharding(chance, len(shape)) for name, (shape, _) in tensors.items()} for _ in ("before", "after")
    ]
    return compare_shardings(tensors, *sides)


def elements_of(sharding: Sharding, shape: tuple[int, ...], rank: int) -> set[tuple[int, ...]]:
    """Places of a tensor that a rank has, by splitting lists as ``torch.chunk`` does."""
    mesh = sharding.mesh
    if rank not in mesh.ranks:
        return set()
    place = np.unravel_index(mesh.ranks.index(rank), mesh.shape)
    sides = [list(range(size)) for size in shape]
    for axis, placement in enumerate(sharding.placements):
        if isinstance(placement, Shard):
            rows = sides[placement.dim]
            step = max(1, -(-len(rows) // mesh.shape[axis]))
            sides[placement.dim] = rows[step * int(place[axis]) :][:step]
    return set(itertools.product(*sides))


@given(st.integers(0, 10**6))
@settings(max_examples=examples(60), deadline=None)
def test_every_rank_gets_what_it_lacks_once(seed: int) -> None:
    """Cells to and on each rank are the elements that it is to have, those of items from ranks that have them."""
    moves = random_moves(seed)
    for rank in range(8):
        wanted = [
            (place, element)
            for place, tensor in enumerate(moves.tensors)
            for element in elements_of(tensor.target, tensor.shape, rank)
        ]
        arriving = [
            cell for number, item in enumerate(moves.items) if rank in item.destinations for cell in moves.cells(number)
        ]
        got = [
            (cell.tensor, element)
            for cell in [*arriving, *moves.own_cells(rank)]
            for element in itertools.product(*(range(begin, end) for begin, end in cell.box.tolist()))
        ]
        assert sorted(got) == sorted(wanted)
    for number, item in enumerate(moves.items):
        place = 0
        for cell in moves.cells(number):
            tensor = moves.tensors[cell.tensor]
            element = tuple(cell.box[:, 0].tolist())
            assert {rank for rank in range(8) if element in elements_of(tensor.source, tensor.shape, rank)} == set(
                item.sources
            )
            assert cell.begin == place
            place += cell.size
        assert place == item.size


def test_items_of_all_tensors_are_merged() -> None:
    """A shard each for two readers is one item a shard, in bytes; what a rank has it does not get."""
    moves = compare_shardings(
        {"a": ((8, 2), 4), "b": ((), 2), "c": ((4,), 1)},
        {"b": (TWO, [Replicate()]), "*": (TWO, [Shard(0)])},
        (Mesh([1, 2, 3]), [Replicate()]),
    )
    assert [(item.sources, item.destinations, item.size) for item in moves.items] == [
        ((0,), (1, 2, 3), 34),
        ((1,), (2, 3), 34),
        ((0, 1), (2, 3), 2),
    ]
    demands = moves.demands("wxyz")
    assert [(item.size, item.sources, item.destinations) for item in demands.items] == [
        (34, ("w",), ("x", "y", "z")),
        (34, ("x",), ("y", "z")),
        (2, ("w", "x"), ("y", "z")),
    ]
    assert moves.moved_bytes == 70


def test_strided_shards_are_those_of_fsdp_on_tensor_parallelism() -> None:
    """The axis with a split factor splits last; `docs` of torch's ``_StridedShard`` show these rows."""
    mesh = Mesh([[0, 1], [2, 3]], ("dp", "tp"))
    boxes = Sharding(mesh, [Shard(0, split_factor=2), Shard(0)]).boxes((8, 8))
    assert boxes[:, 0].tolist() == [[0, 2], [4, 6], [2, 4], [6, 8]]


def test_caches_go_by_heads_and_experts_whole() -> None:
    """Decode ranks get their heads from prefill ranks; a new replica of an expert comes from any of the old ones."""
    cache = compare_shardings({"keys": ((2, 4, 16), 2)}, cache_sharding(range(2), 4), cache_sharding(range(2, 10), 4))
    assert [(item.sources, item.destinations) for item in cache.items] == [
        ((0,), (2, 3)), ((0,), (4, 5)), ((1,), (6, 7)), ((1,), (8, 9)),
    ]  # fmt: skip
    before, after = expert_shardings({"e0.*": [0, 1], "e1.*": [2]}), expert_shardings({"e0.*": [0, 2, 3], "e1.*": [2]})
    experts = compare_shardings({"e0.up": ((4, 4), 2), "e0.down": ((4, 4), 2), "e1.up": ((4, 4), 2)}, before, after)
    assert [(item.sources, item.destinations, item.size) for item in experts.items] == [((0, 1), (2, 3), 64)]


class Ring:
    """Transfers of every item from its first source around a ring of ranks, in two halves, as a schedule has them."""

    def __init__(self, moves: Resharding, ranks: int) -> None:
        rows = []
        begin = 0
        for item in moves.items:
            for half in range(2):
                first = item.sources[0]
                for hop in range(ranks - 1):
                    sender = (first + hop) % ranks
                    rows.append((sender, (sender + 1) % ranks, 2 * begin + half * item.size, item.size, hop))
            begin += item.size
        self.columns = np.array(rows, dtype=np.int64).reshape(-1, 5).T
        self.unit = Fraction(1, 2 * begin)

    def transfers(self, topology: object) -> Any:
        """Columns as `Transfers` has them."""
        senders, receivers, firsts, amounts, levels = self.columns
        return SimpleNamespace(
            senders=senders, receivers=receivers, firsts=firsts, amounts=amounts, levels=levels, unit=self.unit
        )


def planned(moves: Resharding, schedule: Any) -> Any:
    """Messages by a schedule, with a stand-in for its network."""
    return planned_copies(schedule, None, moves.items, [item.size for item in moves.items])  # type: ignore[arg-type]


class Wires:
    """Runs the routes of all ranks on one computer, on bytes of one array a rank, one slice and batch at a time."""

    def __init__(self, moves: Resharding, routes: list[RankRoute]) -> None:
        self.routes = routes
        self.memory = [np.zeros(route.scratch, dtype=np.uint8) for route in routes]
        chance = np.random.default_rng(0)
        self.items = [chance.integers(1, 256, item.size, dtype=np.uint8) for item in moves.items]
        self.landed = [[np.zeros_like(data) for data in self.items] for _ in routes]
        self.sent = [0] * len(routes)

    def run(self) -> None:
        """Go through all steps; messages of one batch see what was there before it."""
        slices, levels = self.routes[0].moves.slices, self.routes[0].moves.num_levels
        batches = sorted({batch for route in self.routes for batch in route.batches})
        for step in range(slices + levels - 1):
            for rank, route in enumerate(self.routes):
                if route.share.num_levels and 0 <= (number := step - route.share.first_level) < slices:
                    for item, begin, end, place in route.packing(number):
                        self.memory[rank][place : place + end - begin] = self.items[item][begin:end]
            for batch in batches:
                self._exchange(step, batch, slices)

    def _exchange(self, step: int, batch: int, slices: int) -> None:
        flying: dict[tuple[int, int], list[np.ndarray[Any, Any]]] = {}
        messages = [
            (rank, message, *route.piece(message, step - message.level))
            for rank, route in enumerate(self.routes)
            for message in route.batches.get(batch, [])
            if 0 <= step - message.level < slices
        ]
        counts: dict[tuple[int, bool], int] = {}
        for rank, message, place, begin, end in messages:
            counts[rank, message.is_send] = counts.get((rank, message.is_send), 0) + 1
            if message.is_send:
                self.sent[rank] += end - begin
                flying.setdefault((rank, message.peer), []).append(
                    self.memory[rank][place : place + end - begin].copy()
                )
        assert max(counts.values(), default=0) <= MAX_OPERATIONS
        for rank, message, place, begin, end in messages:
            if not message.is_send:
                data = flying[message.peer, rank].pop(0)
                self.memory[rank][place : place + end - begin] = data
                self.landed[rank][message.units.item][begin:end] = data
        assert not any(flying.values())


@given(st.integers(0, 10**6), st.booleans(), st.sampled_from([1, 2, 50]))
@settings(max_examples=examples(60), deadline=None)
def test_messages_bring_all_bytes_in_the_scratch_they_state(seed: int, by_ring: bool, tightness: int) -> None:
    """Every destination has its items, relays hold no more than the limit, and each rank sends what it says."""
    moves = random_moves(seed)
    if not moves.items:
        return
    rows, units = planned(moves, Ring(moves, 8)) if by_ring else direct_copies(moves.items)
    sizes = [item.size for item in moves.items]
    all_of_it = sliced(rows, units, sizes, 2**40)
    most = max(RankRoute(moves, all_of_it, rank).scratch for rank in range(8))
    limit = max(most // tightness, 7 * 2 * len(moves.items) * 2)
    messages = sliced(rows, units, sizes, limit)
    wires = Wires(moves, [RankRoute(moves, messages, rank) for rank in range(8)])
    assert max(route.scratch for route in wires.routes) <= limit
    wires.run()
    for number, item in enumerate(moves.items):
        for rank in item.destinations:
            assert np.array_equal(wires.landed[rank][number], wires.items[number])
    assert wires.sent == [route.sent_bytes for route in wires.routes]


def test_direct_copies_are_from_sources_by_turns() -> None:
    """Four readers of two replicas: each replica sends to two."""
    moves = compare_shardings({"a": ((64,), 1)}, (TWO, [Replicate()]), (Mesh(range(2, 6)), [Replicate()]))
    rows, _ = direct_copies(moves.items)
    assert sorted(rows[:, 2].tolist()) == [0, 0, 1, 1]


def test_a_rank_has_few_messages_in_a_batch() -> None:
    """One rank sends a hundred items to a hundred others in batches, which all ranks number alike."""
    moves = compare_shardings({"a": ((100,), 8)}, (Mesh([0]), [Replicate()]), (Mesh(range(1, 101)), [Shard(0)]))
    rows, units = direct_copies(moves.items)
    messages = sliced(rows, units, [8] * 100, 2**20)
    route = RankRoute(moves, messages, 0)
    assert [len(batch) for batch in route.batches.values()] == [32, 32, 32, 4]
    assert shares(messages.rows)[0].num_levels == 1


@pytest.mark.parametrize("damage", ["lost", "early", "stranger", "joined"])
def test_refuses_schedules_that_do_not_do_it(damage: str) -> None:
    """A missing hop, a hop before its data, a rank without data, and a transfer of two items."""
    moves = compare_shardings({"a": ((4, 4), 1)}, (TWO, [Shard(0)]), (Mesh([2, 3]), [Replicate()]))
    schedule = Ring(moves, 4)
    rows, _ = planned(moves, schedule)
    assert len(rows)
    columns = schedule.columns
    if damage == "lost":
        schedule.columns = np.delete(columns, 2, axis=1)
    elif damage == "early":
        columns[4] = 0
    elif damage == "stranger":
        schedule.columns = columns[:, 1:]
    else:
        columns[3, 1] += 1
        columns[2, 1] += 8
    with pytest.raises(ProgramError):
        planned(moves, schedule)


def test_refuses_scratch_that_no_slice_fits() -> None:
    """The least that would do is in the message, and does."""
    moves = compare_shardings({"a": ((64, 64), 4)}, (TWO, [Shard(0)]), (Mesh(range(2, 6)), [Shard(1)]))
    rows, units = direct_copies(moves.items)
    with pytest.raises(UnsupportedError, match="at least 4"):
        sliced(rows, units, [item.size for item in moves.items], 3)
    assert sliced(rows, units, [item.size for item in moves.items], 4).slices == 2048
    assert (rows[:, FIRST] < rows[:, END]).all()


class Partial:
    """Stands for that of torch."""


CACHE = {"a": ((4, 4), 2)}
REFUSALS: list[tuple[Any, str]] = [
    (lambda: Mesh([0, 0]), "each rank once"),
    (lambda: Mesh([0, -1]), "each rank once"),
    (lambda: Mesh([[0, 1], [2]]), "grid"),
    (lambda: Mesh("ab"), "grid"),
    (lambda: Mesh([]), "each rank once"),
    (lambda: Mesh([0, 1], ("a", "b")), "1 names"),
    (lambda: Sharding(Mesh([0]), ()), "placements"),
    (lambda: Sharding(Mesh([0]), [Partial()]), "add up"),
    (lambda: Sharding(Mesh([0]), ["shard"]), "Shard or Replicate"),
    (lambda: Sharding(Mesh([0], ("tp",)), {"dp": Shard(0)}), "'dp'"),
    (lambda: Sharding([0, 1], [Shard(0)]), "DeviceMesh"),  # type: ignore[arg-type]
    (lambda: Sharding(Mesh([[0, 1]]), [Shard(0, 3), Shard(0)]).boxes((8,)), "split_factor 3"),
    (lambda: Sharding(Mesh([[0, 1], [2, 3]]), [Shard(0, 2), Shard(0)]).boxes((6,)), "does not divide"),
    (lambda: Sharding(TWO, [Shard(1)]).boxes((8,)), "dimension 1"),
    (lambda: Shard(1.5), "dimension"),  # type: ignore[arg-type]
    (lambda: compare_shardings(CACHE, (TWO, [Shard(2)]), (TWO, [Shard(0)])), "'a'"),
    (lambda: compare_shardings(CACHE, {"b": (TWO, [Shard(0)])}, (TWO, [Shard(0)])), "'a'"),
    (lambda: compare_shardings(CACHE, {1: (TWO, [Shard(0)])}, (TWO, [Shard(0)])), "names"),
    (lambda: compare_shardings(CACHE, TWO, TWO), "Sharding"),
    (lambda: compare_shardings({"a": ((-1,), 2)}, (TWO, [Shard(0)]), (TWO, [Shard(0)])), "dimension"),
    (lambda: compare_shardings(CACHE, (TWO, [Shard(0)]), (TWO, [Shard(0)])).demands(), "no bytes"),
    (lambda: compare_shardings(CACHE, (TWO, [Shard(0)]), (Mesh([7]), [Shard(0)])).demands("abc"), "rank 7"),
    (lambda: compare_shardings({"a": ((2**53, 2), 4)}, (TWO, [Shard(0)]), (Mesh([2]), [Shard(0)])).items, "2\\^53"),
    (lambda: cache_sharding(range(3), 4), "4 heads"),
    (lambda: cache_sharding(range(4), 0), "heads"),
]


@pytest.mark.parametrize(("call", "place"), REFUSALS)
def test_refuses_bad_input(call: Any, place: str) -> None:
    """One error of ours says what is wrong."""
    with pytest.raises(ColloptError, match=place):
        call()
