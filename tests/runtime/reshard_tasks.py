"""What the ranks of the resharding tests do; a module of its own because the processes import it."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
import torch
import torch.distributed as dist
from runtime_tasks import join, message_of, same
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import distribute_tensor, placement_types
from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module

from collopt import Demands, Plan, plan, topologies
from collopt.runtime import Mesh, Replicate, Shard, Sharding, reshard
from collopt.runtime.resharding import reshard as reshard_module

TYPES = ("float32", "bfloat16", "float16", "int64", "uint8", "bool", "complex64", "float64", "int16", "float8_e4m3fn")


def whole_tensor(number: int, seed: int) -> torch.Tensor:
    """A tensor of random bits, the same on all ranks."""
    chance = random.Random(seed * 1000 + number)
    dtype = getattr(torch, TYPES[number % len(TYPES)])
    shape = [chance.randint(1, 23) for _ in range(chance.choice((0, 1, 2, 2, 2, 3)))]
    if not chance.randrange(12) and shape:
        shape[0] = 0
    random_bits = torch.Generator().manual_seed(seed * 1000 + number)
    bits = torch.randint(0, 2 if dtype is torch.bool else 256, (*shape, dtype.itemsize), generator=random_bits)
    return bits.to(torch.uint8).view(dtype).view(shape)


def random_sharding(chance: random.Random, ranks: list[int], dims: int) -> Sharding:
    """A mesh of some shape on these ranks, with placements that a tensor of so many dimensions can have."""
    size = len(ranks)
    shape = [size]
    divisors = [factor for factor in range(2, size) if size % factor == 0]
    if divisors and chance.random() < 0.7:
        factor = chance.choice(divisors)
        shape = [factor, size // factor]
    choices = [Replicate(), *(Shard(dim) for dim in range(-dims, dims))]
    return Sharding(Mesh(np.reshape(ranks, shape)), [chance.choice(choices) for _ in shape])


def part_of(whole: torch.Tensor, sharding: Sharding, rank: int) -> torch.Tensor | None:
    """A rank's part of a tensor, by slicing."""
    if rank not in sharding.mesh.ranks:
        return None
    box = sharding.boxes(whole.shape)[sharding.mesh.ranks.index(rank)]
    return whole[tuple(slice(begin, end) for begin, end in box.tolist())].clone().contiguous()


class Case:
    """Tensors with shardings before and after, on some ranks each."""

    def __init__(self, ranks: int, tensors: int, seed: int) -> None:
        chance = random.Random(seed)
        self.wholes = {f"layer.{number}": whole_tensor(number, seed) for number in range(tensors)}
        groups = [sorted(chance.sample(range(ranks), chance.randint(1, ranks))) for _ in range(4)]
        self.source, self.target = (
            {
                name: random_sharding(chance, chance.choice(groups[first : first + 2]), whole.dim())
                for name, whole in self.wholes.items()
            }
            for first in (0, 2)
        )

    def parts(self, shardings: Mapping[str, Sharding], rank: int) -> dict[str, torch.Tensor]:
        """What a rank has."""
        parts = {name: part_of(whole, shardings[name], rank) for name, whole in self.wholes.items()}
        return {name: part for name, part in parts.items() if part is not None}


def case_agrees(rank: int, ranks: int, seed: int, **options: Any) -> bool:
    """Reshard a random case, and compare with slices of the whole tensors."""
    case = Case(ranks, 12, seed)
    state, right = case.parts(case.source, rank), case.parts(case.target, rank)
    before = {name: tensor.clone() for name, tensor in state.items()}
    if seed % 3 == 1:
        options["output"] = {name: torch.zeros_like(tensor) for name, tensor in right.items()}
    result: Any = reshard(state, case.source, case.target, **options)
    if options.get("async_op"):
        result = result.wait()
    kept = all(same(state[name].view(-1), before[name].view(-1)) for name in state)
    return (
        kept
        and result.keys() == right.keys()
        and all(
            result[name].dtype == right[name].dtype
            and result[name].shape == right[name].shape
            and same(result[name].view(-1), right[name].view(-1))
            for name in right
        )
    )


def random_cases(rank: int, folder: str, ranks: int, seeds: int) -> dict[str, bool]:
    """Random cases, waited for or not, with little scratch or much; and DTensors."""
    join(rank, folder, ranks)
    cases = {f"seed {seed}": case_agrees(rank, ranks, seed, **options(seed)) for seed in range(6, seeds)}
    return cases | {"redistribute": dtensors(random.Random(4), ranks) == []}


def dtensors(chance: random.Random, ranks: int = 8) -> list[str]:
    """Reshard DTensors on one mesh to other placements; names of those that differ from `redistribute`."""
    mesh = init_device_mesh("cpu", (ranks // 4, 4), mesh_dim_names=("dp", "tp"))
    strays = []
    choices = [placement_types.Replicate(), *(placement_types.Shard(dim) for dim in range(2))]
    for number in range(10):
        whole = torch.randn(
            chance.randint(1, 13), chance.randint(1, 13), generator=torch.Generator().manual_seed(number)
        )
        before, after = ([chance.choice(choices) for _ in range(2)] for _ in range(2))
        tensor = distribute_tensor(whole, mesh, before)
        moved: Any = reshard({"t": tensor}, target=(mesh, after))
        right = tensor.redistribute(mesh, after)
        if moved["t"].placements != right.placements or not same(moved["t"].to_local(), right.to_local().contiguous()):
            strays.append(f"{before} to {after} of {whole.shape}")
    return strays


def sharded_model(rank: int) -> bool:
    """Give full copies of a layer that FSDP splits on top of tensor parallelism to two ranks of eight."""
    mesh = init_device_mesh("cpu", (2, 4), mesh_dim_names=("dp", "tp"))
    torch.manual_seed(0)
    layer = torch.nn.Linear(12, 16)
    right = {name: tensor.detach().clone() for name, tensor in layer.state_dict().items()}
    parallelize_module(layer, mesh["tp"], ColwiseParallel())
    fully_shard(layer, mesh=mesh["dp"])
    moved: Any = reshard(layer.state_dict(), target=(Mesh([3, 5]), [Replicate()]))
    return moved.keys() == (right.keys() if rank in (3, 5) else set()) and all(
        same(moved[name], right[name]) for name in moved
    )


def refusals(rank: int, ranks: int) -> dict[str, str]:
    """What this rank is told in calls that are wrong on some rank; the last one is right."""
    first, second = Mesh(range(4)), Mesh(range(4, 8))
    own = {"a": torch.ones(2, 3), "b": torch.ones(1)} if rank < 4 else {}
    rules = {"source": {"*": Sharding(first, [Shard(0)])}, "target": (second, [Shard(0)])}
    odd = rank == 2

    def told(state: Any = own, **options: Any) -> str:
        return message_of(lambda: reshard(state, **(rules | options)))

    whole = {"a": torch.zeros(2, 3), "b": torch.zeros(1)} if 4 <= rank < 8 else {}
    return {
        "another type": told({name: tensor.double() if odd else tensor for name, tensor in own.items()}),
        "another shape": told(_changed(own, odd, torch.ones(2, 4))),
        "too few rows": told(_changed(own, odd, torch.ones(1, 3))),
        "one tensor missing": told({} if odd else own),
        "a tensor outside the mesh": told({"a": torch.ones(2, 3)} if rank == 6 else own),
        "another mesh": told(target=(first if odd else second, [Shard(0)])),
        "another limit": told(max_scratch_bytes=2**20 if odd else 2**21),
        "little scratch": told(max_scratch_bytes=1, target=(second, [Replicate()])),
        "no mapping": told([1] if odd else own),
        "not contiguous": told(_changed(own, odd, torch.ones(3, 2).T)),
        "no target": told(target=None),
        "no rule": told(source={"a": Sharding(first, [Shard(0)])}),
        "rank beyond": told(target=(Mesh([ranks]), [Shard(0)])),
        "no such dimension": told(target=(second, [Shard(1)])),
        "output of another shape": told(output=_changed(whole, rank == 5, torch.zeros(3, 3))),
        "output missing": told(output={} if rank == 5 else whole),
        "output without state": told(output=whole | ({"c": torch.ones(1)} if rank == 5 else {})),
        "shared memory": told(output={"a": own["a"], "b": torch.zeros(1)} if odd else whole),
        "wrong timeout": told(timeout=-1 if odd else 5),
        "another network": told(topology=topologies.ring(4, bandwidth=1) if odd else None),
        "plan of other items": told(plan=plan_of_two_items()),
        "plan of a collective": told(plan=plan(topologies.ring(8, bandwidth=1), "broadcast", root=0)),
        "fine": told(output=whole),
        "moved": str(all(bool(tensor.all()) for tensor in whole.values())),
    }


def plan_of_two_items() -> Plan:
    """A plan for more items than the refused calls have."""
    network = topologies.ring(8, bandwidth=1)
    first, second, *_ = network.compute_nodes
    return plan(network, Demands([("a", 1, [first], [second]), ("b", 2, [second], [first])]))


def _changed(state: Mapping[str, torch.Tensor], changes: bool, tensor: torch.Tensor) -> dict[str, torch.Tensor]:
    return {**state, "a": tensor} if changes else dict(state)


def repeated(rank: int) -> list[bool]:
    """Call twice with tensors of one kind, then with others: what is right, and that only new kinds are planned."""
    answers = []
    with patch.object(reshard_module, "merged", wraps=reshard_module.merged) as plans:
        for calls, rows in ((1, 5), (1, 5), (2, 6), (2, 5)):
            state = {"a": torch.full((rows, 2), float(rows))} if rank == 1 else {}
            moved: Any = reshard(state, (Mesh([1]), [Replicate()]), (Mesh([0, 7]), [Shard(1)]))
            right = {"a": torch.full((rows, 1), float(rows))} if rank in (0, 7) else {}
            answers.append(plans.call_count == calls and moved.keys() == right.keys())
            answers.append(all(torch.equal(moved[name], right[name]) for name in right))
    return answers


def in_a_part(rank: int) -> bool:
    """Reshard among the last three ranks alone, whose meshes name ranks of all."""
    group = dist.new_group([5, 6, 7])
    if rank < 5:
        return True
    state = {"a": torch.arange(6)} if rank == 6 else {}
    network = topologies.ring(8, bandwidth=25)
    moved: Any = reshard(state, (Mesh([6]), [Replicate()]), (Mesh([7, 5]), [Shard(0)]), group=group, topology=network)
    right: dict[str, list[int]] = {5: {"a": [3, 4, 5]}, 6: {}, 7: {"a": [0, 1, 2]}}[rank]
    return bool({name: tensor.tolist() for name, tensor in moved.items()} == right)


class Answers(NamedTuple):
    """What one rank has to tell."""

    cases: dict[str, bool]
    dtensors: list[str]
    model: bool
    refusals: dict[str, str]
    repeated: list[bool]
    part: bool


def everything(rank: int, folder: str, ranks: int = 8) -> Answers:
    """All tasks of eight ranks, one after the other: starting processes takes longer than what they do."""
    join(rank, folder, ranks)
    cases = {f"seed {seed}": case_agrees(rank, ranks, seed, **options(seed)) for seed in range(6)}
    beside = dtensors(random.Random(3)), sharded_model(rank)
    return Answers(cases, *beside, refusals(rank, ranks), repeated(rank), in_a_part(rank))


def options(seed: int) -> dict[str, Any]:
    """Whether a call is waited for, its scratch, and for some the network that it is planned for."""
    network = {"topology": topologies.ring(8, bandwidth=25)} if seed == 5 else {}
    return {"async_op": seed % 2 == 0, "max_scratch_bytes": (2**26, 2**14, 3000)[seed % 3], **network}
