"""What the ranks of the all-to-all tests do; a module of its own because the processes import it."""

from __future__ import annotations

import os
import time
from contextlib import nullcontext
from functools import partial
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
import torch
import torch.distributed as dist
from runtime_tasks import join, message_of, same

from collopt.runtime import all_to_all_single
from collopt.runtime.all_to_allv import all_to_all_single as runtime
from collopt.schedules.stages.two_tier_cost import TwoTierModel

RANKS = 4
SHAPES = ((2, 2), (1, 4), (4, 1))
TYPES = (torch.int64, torch.uint8, torch.float32, torch.bfloat16)
TRAILING: tuple[tuple[int, ...], ...] = ((), (3,), (1,), (2, 5))


def matrices(seed: int, ranks: int = RANKS) -> dict[str, np.ndarray]:
    """Rows from rank to rank, of all sorts; the same everywhere."""
    rng = np.random.default_rng(seed)
    random = rng.integers(0, 40, (ranks, ranks))
    one_hot, column = np.zeros_like(random), np.zeros_like(random)
    one_hot[0, ranks - 1] = 37
    column[:, 1 % ranks] = rng.integers(1, 100, ranks)
    gaps = random.copy()
    gaps[rng.integers(ranks)], gaps[:, rng.integers(ranks)] = 0, 0
    return {
        "random": random,
        "skewed": np.minimum(rng.zipf(1.5, (ranks, ranks)), 3000),
        "zero": np.zeros_like(random),
        "one cell": one_hot,
        "one column": column,
        "empty row and column": gaps,
        "sparse": random * (rng.random((ranks, ranks)) < 0.3),
        "own data only": np.diag(random.diagonal()),
    }


def agrees(
    rank: int,
    matrix: np.ndarray,
    dtype: torch.dtype,
    trailing: tuple[int, ...],
    group: dist.ProcessGroup | None = None,
    **options: Any,
) -> bool:
    """Exchange random bits, and compare with torch's own exchange of them."""
    sends, takes = matrix[rank].tolist(), matrix[:, rank].tolist()
    generator = torch.Generator().manual_seed(1000 + rank)
    width = torch.empty(trailing).numel() * dtype.itemsize
    bits = torch.randint(0, 256, (sum(sends) * width,), dtype=torch.uint8, generator=generator)
    mine = bits.view(dtype).view(sum(sends), *trailing)
    wanted = torch.empty(sum(takes) * width, dtype=torch.uint8)
    # As bytes: NaNs are to keep their bits.
    dist.all_to_all_single(wanted, bits.clone(), [n * width for n in takes], [n * width for n in sends], group=group)
    output = torch.full((sum(takes) * width,), 99, dtype=torch.uint8).view(dtype).view(sum(takes), *trailing)
    before = bits.clone()
    if options.get("traffic") is not None:
        options["traffic"] = np.array(options["traffic"])
    work = all_to_all_single(output, mine, takes, sends, group, **options)
    # The call has read its matrix, which may change from now on.
    for given in (sends, takes, options.get("traffic")):
        if given is not None:
            given[:] = [-1] * len(given)  # every row of the matrix, too
    if work is not None:
        work.wait()
    return torch.equal(output.view(-1).view(torch.uint8), wanted) and torch.equal(bits, before)


class Answers(NamedTuple):
    """What one rank has to tell."""

    specials: dict[str, bool]
    beside: dict[str, bool]
    refusals: dict[str, tuple[str, bool]]
    absence: str


def everything(rank: int, folder: str) -> Answers:
    """Most tasks of four ranks, one after the other: starting processes takes longer than what they do."""
    join(rank, folder)
    return Answers(specials(rank), beside(rank), wrong_calls(rank), absence(rank))


def many_matrices(rank: int, folder: str, seeds: int) -> dict[str, bool]:
    """Many matrices on four ranks."""
    join(rank, folder)
    return exchanges(rank, seeds)


def sixteen_ranks(rank: int, folder: str, seeds: int) -> dict[str, bool]:
    """Many matrices on two shapes of sixteen ranks, with both sorts of stages, waited for or not."""
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    dist.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=16)
    return {
        f"{name} of seed {seed}": agrees(
            rank,
            matrix,
            TYPES[seed % 4],
            (),
            async_op=seed % 5 == 0,
            gpus_per_server=4 + 4 * (seed % 2),
            stages=(None, "plain", "fewest", "rotations")[seed // 2 % 4],
        )
        for seed in range(seeds)
        for name, matrix in matrices(seed, 16).items()
    }


KINDS = ("uniform", "zipf", "adversary")
SLOW_LINKS = TwoTierModel("0.45", "0.05")
NICS = (None, [[1, 1], [1, 0], [1, 1], [1, 1]])  # all of four servers, or all but that of rank 3


def cells_of_50_kb(kind: str) -> np.ndarray:
    """Bytes from each of 8 ranks to each, on 4 servers."""
    rng = np.random.default_rng(1)
    if kind == "zipf":
        shares = 400_000 / np.arange(1, 9) ** 0.8
        return np.array([rng.permutation(shares / shares.sum() * 400_000) for _ in range(8)]).astype(np.int64)
    if kind == "adversary":
        one = np.zeros((8, 8), dtype=np.int64)
        one[::2, ::2] = rng.integers(0, 400_000, (4, 4)) * ~np.eye(4, dtype=np.bool_)
        return one
    return rng.integers(0, 100_000, (8, 8))


class Counted(NamedTuple):
    """Whether all bytes were right, the step, receiver and bytes of each message sent, and the bytes of scratch."""

    right: bool
    sent: list[tuple[int, int, int]]
    scratch: int


def counted_exchanges(rank: int, folder: str) -> list[Counted]:
    """Exchange all `KINDS` by all `NICS` among eight ranks, and count what torch is asked to send in each batch."""
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    dist.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=8)
    return [counted_exchange(rank, kind, nics) for kind in KINDS for nics in NICS]


def counted_exchange(rank: int, kind: str, nics: list[list[int]] | None) -> Counted:
    """Exchange one kind."""
    batches: list[list[tuple[int, int]]] = []
    plans = []
    post, run = dist.batch_isend_irecv, runtime.run

    def count(operations: list[Any]) -> Any:
        sends = [each for each in operations if each.op is dist.isend]
        batches.append([(each.group_peer, each.tensor.nbytes) for each in sends])
        return post(operations)

    with (
        patch("torch.distributed.batch_isend_irecv", count),
        patch.object(runtime, "run", lambda call, plan: plans.append(plan) or run(call, plan)),
    ):
        right = agrees(rank, cells_of_50_kb(kind), torch.uint8, (), gpus_per_server=2, nics=nics, model=SLOW_LINKS)
    (plan,) = plans
    sent = [(step, *each) for step, batch in zip(plan.steps.tolist(), batches, strict=True) for each in batch]
    return Counted(right, sent, plan.scratch)


def exchanges(rank: int, seeds: int) -> dict[str, bool]:
    """All sorts of matrices on all shapes, with all types."""
    results = {}
    for servers, gpus in SHAPES:
        for seed in range(seeds):
            for at, (name, matrix) in enumerate(matrices(seed).items()):
                turn = at + seed + gpus
                for dtype in TYPES if name in ("random", "skewed") else TYPES[turn % 4 :][:1]:
                    case = f"{servers} x {gpus}: {name} of seed {seed}, {dtype}"
                    results[case] = agrees(
                        rank, matrix, dtype, TRAILING[turn % 4], servers=servers, gpus_per_server=gpus
                    )
    return results


def specials(rank: int) -> dict[str, bool]:
    """What else should work."""
    random = matrices(5)["random"]
    exchange = partial(agrees, rank)
    group = dist.new_group([3, 1])
    pair = np.array([[3, 5], [0, 2]])
    member = dist.get_rank(group)
    first = dist.new_group([0])
    ones = torch.ones(2)
    results = {
        "equal splits": equal_splits(rank),
        "traffic": exchange(random, torch.float32, (3,), traffic=random, servers=2),
        "small stages": exchange(random, torch.float32, (3,), gpus_per_server=2, max_stage_bytes=100),
        "little scratch": exchange(random, torch.float32, (3,), gpus_per_server=2, max_scratch_bytes=500),
        "unequal servers": exchange(random, torch.float32, (3,), gpus_per_server=[3, 1]),
        "unequal servers and NICs": exchange(
            random, torch.float32, (3,), servers=2, gpus_per_server=(1, 3), nics=[[1], [1, 0, "1/2"]]
        ),
        "few stages": exchange(random, torch.float32, (3,), stages="fewest"),
        "timeout": exchange(random, torch.float32, (3,), timeout=30),
        "endless timeout": exchange(random, torch.float32, (3,), timeout=1e300),
        "long rows": exchange(random // 20, torch.uint8, (3000,), servers=2),
        "odd types": all(
            exchange(random, dtype, (2,), servers=2)
            for dtype in (torch.bool, torch.complex64, torch.complex128, torch.float8_e4m3fn, torch.float8_e5m2)
        ),
        "rows of nothing": exchange(random, torch.float32, (0,), servers=2),
        "gradients": gradients(rank),
        "inference tensors": inference_tensors(rank),
        "subgroup": member < 0 or agrees(member, pair, torch.int16, (), group),
        "group of one": rank > 0 or agrees(0, np.array([[5]]), torch.int16, (3,), first),
        "not a member": member >= 0
        or "not a member" in message_of(lambda: all_to_all_single(torch.ones(2), ones, group=group)),
        "no group": message_of(lambda: all_to_all_single(torch.ones(2), ones, group=5))  # type: ignore[arg-type]
        == "UnsupportedError: group is a int; expected a ProcessGroup, or None",
    }
    os.environ["LOCAL_WORLD_SIZE"] = "2"
    results["servers of LOCAL_WORLD_SIZE"] = exchange(random, torch.int64, ())
    os.environ["LOCAL_WORLD_SIZE"] = "3"
    results["a LOCAL_WORLD_SIZE that does not divide"] = exchange(random, torch.int64, ())
    del os.environ["LOCAL_WORLD_SIZE"]
    return results


def equal_splits(rank: int) -> bool:
    """Without split sizes everybody gets as much, and a rank without rows need not know how long they are."""
    output, wanted = torch.zeros(8, 3), torch.zeros(8, 3)
    mine = torch.arange(24.0).view(8, 3) + 100 * rank
    all_to_all_single(output, mine, servers=2)
    dist.all_to_all_single(wanted, mine)
    takes, sends = ([3, 0, 0, 0], [0, 0, 0, 0]) if rank == 1 else ([0] * 4, [0, 3 * (rank == 0), 0, 0])
    nobody = torch.zeros(0)
    gift = torch.zeros(3, 2) if rank == 1 else nobody
    all_to_all_single(gift, torch.ones(3, 2) if rank == 0 else nobody, takes, sends, servers=2)
    return same(output, wanted) and bool(gift.all())


def gradients(rank: int) -> bool:
    """A parameter can be exchanged; nothing is recorded."""
    output = torch.zeros(4)
    all_to_all_single(output, torch.full((4,), float(rank), requires_grad=True), servers=2)
    return not output.requires_grad and output.tolist() == [0, 1, 2, 3]


def inference_tensors(rank: int) -> bool:
    """Tensors that were made in inference mode can be written to outside it, as torch's own exchange does."""
    with torch.inference_mode():
        outputs = [torch.zeros(8) for _ in range(2)]
    work = all_to_all_single(outputs[0], torch.full((8,), float(rank)), async_op=True, servers=2)
    assert work is not None
    work.wait()
    all_to_all_single(outputs[1], torch.full((8,), float(rank)), servers=2)
    return all(output.tolist() == [0, 0, 1, 1, 2, 2, 3, 3] for output in outputs)


def beside(rank: int) -> dict[str, bool]:
    """Exchanges that go on beside the caller."""
    exchange = partial(agrees, rank, async_op=True)
    random = matrices(6)["random"]
    return {
        "one": exchange(random, torch.float32, (3,), servers=2),
        "given traffic": exchange(random, torch.float32, (3,), servers=2, traffic=random),
        "nothing to send": exchange(np.zeros_like(random), torch.float32, (3,), servers=2),
        "long rows": exchange(random // 20, torch.uint8, (3000,), servers=2, stages="fewest"),
        "one that waits, three that do not": agrees(rank, random, torch.float32, (), async_op=rank != 1, servers=2),
        "several": several(rank),
    }


def several(rank: int) -> bool:
    """A dozen outstanding exchanges of two groups, other work of these groups between them, and one that is waited for.

    They are waited for in another order on each rank.
    """
    groups = [None, dist.new_group(range(RANKS))]
    begun = []
    right = []
    for number in range(12):
        matrix = matrices(20 + number)["skewed"]
        sends, takes = matrix[rank].tolist(), matrix[:, rank].tolist()
        mine = torch.arange(sum(sends)) + 10_000 * rank
        output, wanted = torch.zeros(2, sum(takes), dtype=torch.int64)
        options: dict[str, Any] = {"servers": 2, "group": groups[number % 2]}
        work = all_to_all_single(output, mine, takes, sends, async_op=True, **options)
        begun.append((work, output, wanted))
        # Collectives and messages of the same group, which must not get into the exchanges' way.
        dist.all_to_all_single(wanted, mine, takes, sends, group=groups[number % 2])
        others = [dist.isend(torch.tensor([number, rank]), (rank + 2) % RANKS, group=groups[number % 2])]
        message = torch.zeros(2, dtype=torch.int64)
        dist.recv(message, (rank + 2) % RANKS, group=groups[number % 2])
        others[0].wait()
        right.append(message.tolist() == [number, (rank + 2) % RANKS])
    after, own = torch.zeros(2, 8, dtype=torch.int64)
    all_to_all_single(after, own + rank, servers=2)
    # All earlier ones of the default group are over by now.
    right += [work.is_completed() for work, _, _ in begun[::2] if work is not None]
    right.append(after.tolist() == [0, 0, 1, 1, 2, 2, 3, 3])
    for work, output, wanted in begun[rank:] + begun[:rank]:
        assert work is not None
        right += [work.wait() and work.wait(), work.is_completed(), torch.equal(output, wanted)]
    return all(right)


EIGHT, EVEN, TWOS = torch.arange(8), [2] * 4, np.full((4, 4), 2)
OUTPUT = object()
"""Stands for the output of the call itself."""
WRONG: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "sum": ("input_split_sizes add up to 9; expected 8", {"async_op": True}, {"input_split_sizes": [2, 2, 2, 3]}),
    "negative": ("output_split_sizes is [4, 4, 4, -4]; expected", {}, {"output_split_sizes": [4, 4, 4, -4]}),
    "fractions": ("input_split_sizes is [2.0, 2.0, 2.0, 2.0]; expected 4", {}, {"input_split_sizes": [2.0] * 4}),
    "64 bits": ("input_split_sizes is [9223372036854775808,", {}, {"input_split_sizes": [2**63, 2, 2, 2]}),
    "uneven": ("input has 7 rows", {}, {"input": torch.arange(7), "input_split_sizes": None}),
    "strided": ("input has shape (8,) and is not contiguous", {}, {"input": torch.arange(16)[::2]}),
    "sparse": ("input has shape (8,) and is not contiguous", {}, {"input": EIGHT.to_sparse()}),
    "conjugate": ("input is a lazy conjugate", {}, {"input": EIGHT.cfloat().conj()}),
    "no tensor": ("input is a NoneType; expected a torch.Tensor", {}, {"input": None}),
    "number": ("input is a single number", {}, {"input": torch.tensor(1)}),
    "types": ("output is torch.int64 and input is torch.int32", {}, {"input": EIGHT.int()}),
    "device": ("input is on meta but the group's backend is gloo", {}, {"input": EIGHT.to("meta")}),
    "rows": ("output has rows of 8 bytes and", {}, {"input": EIGHT.view(4, 2), "input_split_sizes": None}),
    "overlap": ("input and output overlap", {}, {"input": OUTPUT}),
    "shape": ("servers is 3 and gpus_per_server is 2, but", {"servers": 2, "gpus_per_server": 2}, {"servers": 3}),
    "timeout": ("timeout is '1'; expected", {"timeout": 1}, {"timeout": "1"}),
    "stage": ("max_stage_bytes is 0; expected", {"max_stage_bytes": 10}, {"max_stage_bytes": 0}),
    "unequal servers": ("gpus_per_server adds up to 3,", {"gpus_per_server": [2, 2]}, {"gpus_per_server": [2, 1]}),
    "no NIC": ("nics[0] has no rate above 0;", {"nics": [[1]] * 4}, {"nics": [[0], [1], [1], [1]]}),
    "odd NIC": ("the largest rate of nics", {"nics": [["0.97"]] * 4}, {"nics": [["0.97"], [1], [1], [1]]}),
    "text for a NIC": (
        "the arguments of the all-to-all cannot be read: amount is 'x'",
        {"nics": [[1]] * 4},
        {"nics": [["x"], [1], [1], [1]]},
    ),
    "NaN for a NIC": (
        "the arguments of the all-to-all cannot be read: amount is nan",
        {"nics": [[1]] * 4},
        {"nics": [[float("nan")], [1], [1], [1]]},
    ),
    "model": ("the model is 450; expected a TwoTierModel", {}, {"model": 450}),
    "scratch": ("max_scratch_bytes is -1; expected", {"max_scratch_bytes": 10}, {"max_scratch_bytes": -1}),
    "kind of stages": ("stages is 'few'; expected one of", {"stages": "fewest"}, {"stages": "few"}),
    "async": ("async_op is 2; expected True or False", {"async_op": True}, {"async_op": 2}),
    "huge traffic": (
        "the traffic from rank 0 to 0 is 1180591620717411303426",
        {"traffic": TWOS},
        {"traffic": TWOS.astype(object) + 2**70},
    ),
    "traffic row": ("traffic has [2, 2, 3, 2] in row 2", {"traffic": TWOS}, {"traffic": TWOS + np.diag([0, 0, 1, 0])}),
    "traffic shape": ("the traffic has shape (4, 3);", {"traffic": TWOS}, {"traffic": TWOS[:, :3]}),
}
"""Calls with wrong arguments on rank 2: how its message begins, the arguments of all ranks, and those of rank 2."""
NO_SPLITS = {"output_split_sizes": None, "input_split_sizes": None}
DIFFERENT: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "three servers": ("servers is 3, but the group has 4 ranks; expected servers x gpus", {"servers": 3}, {}),
    "sizes": ("the ranks disagree about gpus_per_server,", {"gpus_per_server": [3, 1]}, {"gpus_per_server": [1, 3]}),
    "NICs": ("the ranks disagree about nics", {"servers": 1, "nics": [[1] * 4]}, {"nics": [[1, 1, 1, 2]]}),
    "traffic": ("the ranks disagree about traffic", {"traffic": TWOS}, {"traffic": TWOS + np.diag([1, 0, 0, 0])}),
    "one traffic": ("the ranks disagree about traffic", {}, {"traffic": TWOS}),
    "mismatch": ("rank 2 has 1 rows for rank 1, which expects 2", {}, {"input_split_sizes": [2, 1, 3, 2]}),
    "types": (
        "the ranks disagree about the element type", {}, {"output": torch.zeros(8).double(), "input": EIGHT.double()},
    ),
    "shapes": ("the ranks disagree about servers: 2 on rank 0, 1 on rank 2", {"servers": 2}, {"servers": 1}),
    "caps": (
        "the ranks disagree about max_stage_bytes: 20 on rank 0", {"max_stage_bytes": 20}, {"max_stage_bytes": 21},
    ),
    "stages": ("the ranks disagree about stages", {}, {"stages": "fewest"}),
    "scratch": ("the ranks disagree about max_scratch_bytes: not given on rank 0", {}, {"max_scratch_bytes": 20}),
    "little scratch": (
        "the exchange needs 16 bytes of scratch on rank 0",
        {"servers": 2, "max_stage_bytes": 2**20, "max_scratch_bytes": 15}, {},
    ),
    "rows": (
        "the ranks disagree about the bytes of a row: 8 on rank 0, 16 on rank 2",
        {**NO_SPLITS, "output": torch.zeros(4, dtype=torch.int64), "input": EIGHT[:4]},
        {"output": torch.zeros(4, 2, dtype=torch.int64), "input": EIGHT.view(4, 2)},
    ),
}  # fmt: skip
"""Calls that do not fit together: how the message on all ranks begins, and arguments as above."""


def wrong_calls(rank: int) -> dict[str, tuple[str, bool]]:
    """Make the calls of both tables; return the message of each, and whether its output was left alone."""
    answers = {}
    for table, cases in (("wrong", WRONG), ("different", DIFFERENT)):
        for name, (_, options, options_of_2) in cases.items():
            output = torch.full((8,), 99)
            arguments = {"output": output, "input": EIGHT, "output_split_sizes": EVEN, "input_split_sizes": EVEN}
            arguments |= {**options, **(options_of_2 if rank == 2 else {})}
            arguments = {key: output if value is OUTPUT else value for key, value in arguments.items()}
            answers[f"{table}: {name}"] = (
                message_of(partial(all_to_all_single, **arguments)),
                bool((output == 99).all()),
            )
    level = dist.DebugLevel.DETAIL if rank == 2 else dist.get_debug_level()
    with patch("torch.distributed.get_debug_level", return_value=level):
        call = partial(all_to_all_single, torch.zeros(8), torch.ones(8), async_op=True)
        answers["debugging"] = message_of(call), True
    answers["after all that"] = message_of(partial(all_to_all_single, torch.zeros_like(EIGHT), EIGHT)), True
    return answers


def late(rank: int, folder: str) -> tuple[str, str]:
    """Rank 3 agrees to a call and then sends nothing; return what its wait raises, and another call before that."""
    join(rank, folder)
    call = partial(all_to_all_single, servers=2, async_op=True, timeout=1)
    tensors = torch.zeros(4, 8)
    dist.barrier()
    with patch("collopt.runtime.all_to_allv.all_to_all_single.start") if rank == 3 else nullcontext():
        work = call(tensors[0], tensors[1])
        second = message_of(lambda: call(tensors[2], tensors[3]))
    if rank == 3:
        return "late", second
    return message_of(work.wait), second


def absence(rank: int) -> str:
    """Rank 3 stays away from a call, after which the group is of no more use."""
    if rank == 3:
        time.sleep(1)
        return "absent"
    return message_of(lambda: all_to_all_single(torch.zeros(8), torch.ones(8), servers=2, timeout=0.3))
