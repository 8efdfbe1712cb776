"""What the ranks of tests on many ranks do: plans beside torch's own collective of the same name."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from typing import NamedTuple

import torch
import torch.distributed as dist

from collopt.runtime import Program, execute

ROOT = 5
REDUCING = ("reduce_scatter", "allreduce", "reduce")


class Case(NamedTuple):
    """A program and how large it is to be run: elements of a shard, of what each has for each, or of the buffer."""

    network: str
    program: Program
    elements: int
    dtype: str

    @property
    def collective(self) -> str:
        """Such as ``"allgather"``."""
        return str(self.program.collective)

    @property
    def name(self) -> str:
        """What tests call it."""
        return f"{self.collective} of {self.elements} {self.dtype} on {self.network}"


def compared(rank: int, folder: str, cases: Sequence[Case]) -> dict[str, bool]:
    """Run all cases on one group; whether this rank's output was that of torch."""
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    ranks = cases[0].program.num_ranks
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        init_method=f"file://{folder}/rendezvous",
        rank=rank,
        world_size=ranks,
        timeout=timedelta(seconds=600),
    )
    results = {case.name: agrees(case, rank) for case in cases}
    dist.barrier()
    dist.destroy_process_group()
    return results


def agrees(case: Case, rank: int) -> bool:
    """Whether a plan's output is that of torch: every bit, or, of floats that are added, within what order can do.

    A sum of N numbers x_i, in whatever order, is within ``(N - 1) e sum |x_i|`` of the exact one (e is the machine
    epsilon), and so is torch's; torch adds up in float64 here, the magnitudes too.
    """
    mine = numbers(case, rank)
    output = empty(case, mine)
    # No output is right by chance: NaN fails every comparison, and a plan may not rely on zeros.
    output.fill_(float("nan") if mine.dtype.is_floating_point else 99)
    execute(case.program, output, mine)
    kind = mine.dtype
    if not kind.is_floating_point or case.collective not in REDUCING:
        right = bits_equal(output, torchs_own(case, mine))
    else:
        exact, size = torchs_own(case, mine.double()), torchs_own(case, mine.double().abs())
        bound = (case.program.num_ranks - 1) * torch.finfo(kind).eps * size
        right = bool(((output.double() - exact).abs() <= bound).all())
    # What the others' tensors hold after a reduce means nothing, to torch either.
    return right or (case.collective == "reduce" and rank != ROOT)


def numbers(case: Case, rank: int) -> torch.Tensor:
    """Return one rank's input: integers of all sizes, whose sums overflow, or floats of either sign."""
    kind: torch.dtype = getattr(torch, case.dtype)
    parts = case.program.num_ranks if case.collective in ("reduce_scatter", "all_to_all") else 1
    generator = torch.Generator().manual_seed(rank)
    if kind.is_floating_point:
        return torch.randn(parts * case.elements, generator=generator).to(kind)
    limits = torch.iinfo(kind)
    return torch.randint(limits.min, limits.max, (parts * case.elements,), generator=generator, dtype=kind)


def empty(case: Case, mine: torch.Tensor) -> torch.Tensor:
    """Return an output of the right size for the collective."""
    parts = case.program.num_ranks if case.collective in ("allgather", "all_to_all") else 1
    return torch.empty(parts * case.elements, dtype=mine.dtype)


def torchs_own(case: Case, mine: torch.Tensor) -> torch.Tensor:
    """Run the collective of the same name that torch has; all ranks call this together."""
    output = empty(case, mine)
    if case.collective == "allgather":
        dist.all_gather_into_tensor(output, mine)
    elif case.collective == "reduce_scatter":
        dist.reduce_scatter_tensor(output, mine)
    elif case.collective == "all_to_all":
        dist.all_to_all_single(output, mine)
    else:
        output.copy_(mine)
        in_place = {
            "allreduce": dist.all_reduce,
            "broadcast": partial(dist.broadcast, src=ROOT),
            "reduce": partial(dist.reduce, dst=ROOT),
        }
        in_place[case.collective](output)
    return output


def bits_equal(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors have the same bits."""
    return torch.equal(one.view(torch.uint8), other.view(torch.uint8))
