"""What ranks do in the tests of dispatch and combine."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple
from unittest.mock import patch

import torch
import torch.distributed as dist
from runtime_forests import ring_forest
from runtime_tasks import RANKS, join, message_of, planned
from torch.distributed.nn.functional import all_to_all_single as torch_all_to_all

from collopt.runtime import all_to_all_single, differentiable_all_to_all, execute, moe_combine, moe_dispatch
from collopt.runtime.all_to_allv import arguments

COLUMNS = 5
CHOICES = 3


class Batch(NamedTuple):
    """Tokens of one rank: contents, experts and weights."""

    tokens: torch.Tensor
    indices: torch.Tensor
    weights: torch.Tensor


def batches(seed: int, ranks: int, experts: int, dtype: torch.dtype) -> list[Batch]:
    """Draw tokens of all ranks, of which the first has none and others differ in number."""
    random = torch.Generator().manual_seed(seed)
    made = []
    for rank in range(ranks):
        count = 0 if rank == 0 else int(torch.randint(0, 40, (), generator=random))
        popular = torch.rand(count, experts, generator=random) / torch.arange(1, experts + 1) ** (seed % 3)
        tokens, weights = torch.randn(count, COLUMNS, generator=random), torch.rand(count, CHOICES, generator=random)
        made.append(Batch(tokens.to(dtype), popular.topk(CHOICES).indices, weights.to(dtype)))
    return made


def layer(batch: Batch, factors: torch.Tensor) -> torch.Tensor:
    """Compute what experts make of tokens on one rank: products with their factors, weighted and added up."""
    chosen = batch.tokens[:, None] * factors[batch.indices]
    return (chosen * batch.weights[..., None]).sum(dim=1)


def finished(result: Any, is_async: bool) -> Any:
    """Wait for an asynchronous call; a collective of the same group before that does not get in its way."""
    total = torch.ones(1)
    dist.all_reduce(total)
    assert total.item() == dist.get_world_size()
    if not is_async:
        return result
    first = result.wait()
    assert result.is_completed()
    assert result.wait(timeout=1) is first
    return first


def trained(rank: int, seed: int, dtype: torch.dtype, options: dict[str, Any], device: str = "cpu") -> dict[str, bool]:
    """Compare a dispatch, a combine and their gradients with the same on one rank; asynchronous on some ranks."""
    is_async = bool((seed + rank) % 2) and device == "cpu"
    ranks, experts = dist.get_world_size(), 2 * dist.get_world_size()
    random = torch.Generator().manual_seed(seed)
    placement = torch.randperm(experts, generator=random) % ranks
    every = batches(seed, ranks, experts, dtype)
    factors = torch.randn(experts, COLUMNS, generator=random).to(dtype).requires_grad_()
    slopes = [torch.randn(batch.tokens.shape, generator=random).to(dtype) for batch in every]
    for batch in every:
        batch.tokens.requires_grad_()
        batch.weights.requires_grad_()
    wanted = [layer(batch, factors) for batch in every]
    torch.autograd.backward(wanted, slopes)
    mine = Batch(*(each.detach().clone().to(device) for each in every[rank]))
    mine.tokens.requires_grad_()
    mine.weights.requires_grad_()
    own = factors.detach()[placement == rank].to(device).requires_grad_()
    got = moe_dispatch(mine.tokens, mine.indices, placement, mine.weights, async_op=is_async, **options)
    got = finished(got, is_async)
    expected = [
        token
        for batch in every
        for token, chosen in zip(batch.tokens.detach(), batch.indices, strict=True)
        if (placement[chosen] == rank).any()
    ]
    received = torch.stack(expected) if expected else mine.tokens.new_zeros(0, COLUMNS)
    outputs = got.tokens[got.rows] * own.repeat_interleave(got.counts, dim=0)
    result = finished(moe_combine(outputs, got.handle, got.weights, async_op=is_async), is_async)
    repeated = moe_combine(outputs, got.handle, got.weights)
    result.backward(slopes[rank].to(device))
    got.handle.plan.verify()
    tolerance = {"atol": 0.15, "rtol": 0.05} if dtype == torch.bfloat16 else {"atol": 1e-5, "rtol": 1e-5}

    def near(one: Any, other: Any) -> bool:
        return bool(torch.allclose(one.cpu(), other, **tolerance))

    return {
        "received": torch.equal(got.tokens.cpu(), received),
        "combined": near(result, wanted[rank]),
        "repeats": torch.equal(result, repeated),
        "gradient of tokens": near(mine.tokens.grad, every[rank].tokens.grad),
        "gradient of weights": near(mine.weights.grad, every[rank].weights.grad),
        "gradient of experts": near(own.grad, factors.grad[placement == rank]),  # type: ignore[index]
    }


def many(rank: int, folder: str, *, ranks: int, seeds: int) -> dict[str, bool]:
    """Train with many routings, types and shapes."""
    join(rank, folder, ranks)
    right = {}
    for seed in range(seeds):
        for servers in (1, 2, ranks):
            for dtype in (torch.float32, torch.bfloat16, torch.float64):
                options = {"servers": servers, "max_stage_tokens": (None, 3, 1)[seed % 3]}
                options["stages"] = (None, "plain", "fewest", "rotations")[seed % 4]
                options["relay_rounds"] = (None, 3, 1)[seed % 3]
                for name, fine in trained(rank, seed, dtype, options).items():
                    right[f"{name} {seed} {servers} {dtype}"] = fine
    return right


class Answers(NamedTuple):
    """What one rank has to tell."""

    right: dict[str, bool]
    bytes: tuple[list[int], list[int]]
    relayed: tuple[list[int], list[int]]
    told: dict[str, str]
    mixed: dict[str, str]
    absence: str


def everything(rank: int, folder: str) -> Answers:
    """Train some, count bytes, make wrong calls, and one that rank 3 stays away from."""
    join(rank, folder)
    right = {}
    cases = [(2, torch.float32, 0), (2, torch.bfloat16, None), (4, torch.float64, None), (4, torch.float32, 2)]
    for seed, (servers, dtype, relay_rounds) in enumerate(cases):
        options = {"servers": servers, "stages": "fewest", "max_stage_tokens": 7 if seed else None}
        options["relay_rounds"] = relay_rounds
        right |= {f"{name} {seed}": fine for name, fine in trained(rank, seed, dtype, options).items()}
    with patch.object(arguments, "MAX_ROW_SERVERS", 1):
        right |= {
            f"{name} of many servers": fine for name, fine in trained(rank, 1, torch.float32, {"servers": 2}).items()
        }
    right["without gradients"] = plain(rank)
    right["without choices"] = unchosen()
    right["all-to-all with gradients"] = stands_in(rank)
    return Answers(
        right,
        counted(rank),
        relayed(rank),
        {**wrong_dispatches(rank), **wrong_combines(rank)},
        mixed(rank),
        absence(rank),
    )


def plain(rank: int) -> bool:
    """Numbers without gradients, of which each goes to one expert, make the round trip; one is asked for twice."""
    tokens = torch.arange(8).view(4, 2) + 100 * rank
    got = moe_dispatch(tokens, torch.tensor([[0, 0], [1, 1], [2, 2], [3, 3]]), range(RANKS), servers=2)
    back = moe_combine(got.tokens[got.rows], got.handle)
    senders = (got.tokens[:, 0] // 100).tolist()
    return torch.equal(back, 2 * tokens) and senders == [0, 1, 2, 3] and not back.requires_grad


def unchosen() -> bool:
    """Tokens without choices, and so weights without columns, go nowhere; their combined rows are zero."""
    tokens, indices = torch.ones(3, 2), torch.empty(3, 0, dtype=torch.int64)
    got = moe_dispatch(tokens, indices, range(RANKS), torch.empty(3, 0), servers=2)
    back = moe_combine(got.tokens[got.rows], got.handle, got.weights)
    return got.tokens.shape == (0, 2) and torch.equal(back, torch.zeros(3, 2))


def stands_in(rank: int) -> bool:
    """Call as Megatron's dispatcher does, with splits, and as DeepSpeed's, without; gradients are torch's."""
    rows = torch.tensor([[1, 0, 2, 3], [0, 2, 1, 0], [3, 1, 0, 2], [2, 2, 2, 2]])
    sends, takes = rows[rank].tolist(), rows[:, rank].tolist()
    right = []
    for splits in ((takes, sends), ()):
        given = [torch.randn(sum(sends) if splits else RANKS, 3).requires_grad_()]
        given.append(given[0].detach().clone().requires_grad_())
        planned = partial(differentiable_all_to_all, gpus_per_server=2)
        one = planned(dist.group.WORLD, given[0].t().contiguous().t(), *splits, use_nccl_stream=True)
        other = torch_all_to_all(torch.empty_like(one), given[1], *splits)
        for output in (one, other):
            (output * torch.arange(output.numel()).view_as(output)).sum().backward()
        right += [torch.equal(one, other), torch.equal(given[0].grad, given[1].grad)]
    return all(right)


def counted(rank: int) -> tuple[list[int], list[int]]:
    """Bytes to each rank in a dispatch of three tokens of rank 0 to both GPUs of the other server, and in the combine.

    Rank 1 has none, so it is the proxy of one.
    """
    tokens = torch.ones((3 if rank == 0 else 0), 4)
    got = moe_dispatch(tokens, torch.tensor([[2, 3]]).expand(len(tokens), 2), range(RANKS), servers=2)
    there = got.handle.sent_bytes
    moe_combine(got.tokens[got.rows], got.handle)
    return there.tolist(), (got.handle.sent_bytes - there).tolist()


def relayed(rank: int) -> tuple[list[int], list[int]]:
    """Bytes to each rank in a dispatch of 60 tokens of rank 0 to all of three other servers, and in the combine."""
    tokens = torch.arange(0, (240 if rank == 0 else 0)).view(-1, 4).float().requires_grad_()
    got = moe_dispatch(
        tokens, torch.tensor([[1, 2, 3]]).expand(len(tokens), 3), range(RANKS), servers=4, relay_rounds=6
    )
    there = got.handle.sent_bytes
    back = moe_combine(got.tokens[got.rows], got.handle)
    assert torch.equal(back, 3 * tokens)
    return there.tolist(), (got.handle.sent_bytes - there).tolist()


def wrong_dispatches(rank: int) -> dict[str, str]:
    """Make calls that rank 2, or all, get wrong."""
    other = rank == 2
    four = torch.ones(4, 3)
    to = torch.tensor([[0, 1], [1, 2], [2, 3], [3, 0]])
    even, weights = torch.arange(RANKS), torch.ones(4, 2)
    changes: dict[str, dict[str, Any]] = {
        "index": {"indices": to + 1},
        "fractions": {"indices": to.float()},
        "number of indices": {"indices": to[:3]},
        "sparse indices": {"indices": to.to_sparse()},
        "indices without values": {"indices": to.to("meta")},
        "placement": {"placement": even + 1},
        "no tokens": {"tokens": None},
        "strided": {"tokens": torch.ones(4, 6)[:, ::2]},
        "device": {"tokens": four.to("meta")},
        "type of weights": {"weights": to},
        "servers": {"servers": 3},
        "stages": {"stages": "few"},
        "cap": {"max_stage_tokens": 0},
        "rounds": {"relay_rounds": 2000},
        "asynchronous": {"async_op": 1},
        "timeout": {"timeout": -1},
        "types differ": {"tokens": four.double()},
        "columns differ": {"tokens": torch.ones(4, 2)},
        "placements differ": {"placement": even.flip(0)},
        "weights differ": {"weights": None},
        "servers differ": {"servers": 4},
        "stages differ": {"stages": "fewest"},
        "caps differ": {"max_stage_tokens": 5},
        "rounds differ": {"relay_rounds": 5},
    }
    told = {}
    for name, change in changes.items():
        given = {"tokens": four, "indices": to, "placement": even, "weights": weights, "servers": 2}
        told[name] = message_of(partial(moe_dispatch, **{**given, **(change if other else {})}))
    return told


def wrong_combines(rank: int) -> dict[str, str]:
    """Combine what does not fit the dispatch on rank 2; the right combine after that works."""
    got = moe_dispatch(torch.ones(4, 3), torch.arange(4).view(4, 1), torch.arange(RANKS), servers=2)
    fine = got.tokens[got.rows]
    changes: dict[str, dict[str, Any]] = {
        "rows": {"expert_outputs": fine[:3]},
        "output": {"expert_outputs": None},
        "factors": {"weights": torch.ones(3)},
        "factors elsewhere": {"weights": torch.ones(4, device="meta")},
        "kinds of outputs differ": {"expert_outputs": fine.double()},
        "columns of outputs differ": {"expert_outputs": fine[:, :1].contiguous()},
        "after all that": {},
    }
    return {
        name: message_of(
            partial(moe_combine, **{"expert_outputs": fine, "handle": got.handle, **(change if rank == 2 else {})})
        )
        for name, change in changes.items()
    }


def mixed(rank: int) -> dict[str, str]:
    """Make another kind of call on rank 2 than on the others, and then the right one."""
    tokens, to = torch.ones(4, 3), torch.arange(4).view(4, 1)
    arrived = moe_dispatch(tokens, to, range(RANKS), servers=2)
    plan = planned("allgather", ring_forest(RANKS))
    calls: dict[str, Callable[[], object]] = {
        "dispatch": lambda: moe_dispatch(tokens, to, range(RANKS), servers=2),
        "combine": lambda: moe_combine(arrived.tokens[arrived.rows], arrived.handle),
        "all-to-all": lambda: all_to_all_single(torch.empty(8), torch.ones(8), servers=2),
        "run of a plan": lambda: execute(plan, torch.empty(8), torch.ones(2)),
    }
    pairs = [("dispatch", "combine"), ("dispatch", "all-to-all"), ("all-to-all", "run of a plan")]
    told = {f"{one}, {other}": message_of(calls[other if rank == 2 else one]) for one, other in pairs}
    return told | {name: message_of(call) for name, call in calls.items()}


def absence(rank: int) -> str:
    """Rank 3 stays away from a call, after which the group is of no more use."""
    if rank == 3:
        time.sleep(1)
        return "absent"
    tokens, indices = torch.ones(1, 2), torch.zeros(1, 1, dtype=torch.int64)
    return message_of(lambda: moe_dispatch(tokens, indices, torch.arange(RANKS), servers=2, timeout=0.3))
