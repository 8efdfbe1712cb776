"""Random data for a collective, and what torch's own collectives make of them.

What only moves is compared bit for bit.  Sums of integers are too: torch adds them in 64 bits, and the lower bits of
that are what any order of adding in fewer bits gives.  Floating-point sums depend on their order, so they are compared
with torch's sum in float64, within the bound that holds for every order (Higham, "Accuracy and Stability of Numerical
Algorithms", section 4.2): with N contributions x_i and machine epsilon e, ``|result - sum| <= (N - 1) e sum |x_i|``,
where e, twice the unit roundoff, leaves room for the reference's own rounding.  A product may be off by ``(N - 1) e``
of itself, an average by ``N e`` of the average magnitude.  Minima and maxima are exact.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ...programs.program import Program
from ..rounds.batches import shard_elements


class Reference(NamedTuple):
    """What a rank's output has to be.

    `value`: In the output's type if it has to be met bit for bit, in float64 or complex128 otherwise.
    `tolerance`: Largest difference allowed, element by element; None if every bit counts.
    """

    value: Any
    tolerance: Any

    def accepts(self, output: Any) -> bool:
        """Whether an output is right."""
        import torch

        if self.tolerance is None:
            return bool(torch.equal(output.view(torch.uint8), self.value.view(torch.uint8)))
        # Written so that a NaN fails.
        return bool(((output.to(self.value.dtype) - self.value).abs() <= self.tolerance).all())


def tensors(program: Program, rank: int, elements: int, kind: Any, device: Any, *, seed: int = 0) -> tuple[Any, Any]:
    """Make one rank's output and random input."""
    import torch

    sizes = _sizes(program, rank, elements)
    generator = torch.Generator().manual_seed(seed * program.num_ranks + rank)
    if program.layout.reduces and (kind.is_floating_point or kind.is_complex):
        # Between 1/2 and 3/2, so that products stay in range, with either sign.
        real = torch.rand(sizes["input"], generator=generator, dtype=torch.float64) + 0.5
        sign = torch.randint(0, 2, (sizes["input"],), generator=generator) * 2 - 1
        mine = (real * sign).to(kind).to(device)
    else:
        # Random bytes cover every bit pattern; what they mean as numbers does not matter.
        size = sizes["input"] * torch.empty(0, dtype=kind).element_size()
        mine = torch.randint(0, 256, (size,), dtype=torch.uint8, generator=generator).to(device).view(kind)
    return torch.empty(sizes["output"], dtype=kind, device=device), mine


def _sizes(program: Program, rank: int, elements: int) -> dict[str, int]:
    """Elements of one rank's input and output."""
    shares = shard_elements(program.layout, elements)
    if program.layout.in_pairs:
        return {name: sum(parts) for name, parts in _splits(program, rank, elements).items()}
    own = elements if program.collective.has_two_phases else shares[rank]
    whole = "input" if program.collective.direction == "reduce" else "output"
    return {"input": own, "output": own, whole: elements}


def _splits(program: Program, rank: int, elements: int) -> dict[str, list[int]]:
    """Elements for each rank, and from each rank, of an all-to-all(v)."""
    shares, ranks = shard_elements(program.layout, elements), program.num_ranks
    return {"input": list(shares[rank * ranks : (rank + 1) * ranks]), "output": list(shares[rank::ranks])}


def poison(output: Any, wanted: Reference) -> None:
    """Make every element wrong, so that none can be right by chance."""
    import torch

    if wanted.tolerance is None:
        output.view(torch.uint8).copy_(~wanted.value.view(torch.uint8))
    else:
        output.fill_(float("nan"))


def reference(program: Program, rank: int, elements: int, mine: Any, op: str) -> Reference:
    """Let torch's own collectives find out what a rank's output has to be; all ranks call this together."""
    if program.layout.in_pairs:
        return Reference(_exchanged(program, rank, elements, mine), None)
    if not program.layout.reduces:
        return Reference(_moved(program, rank, elements, mine), None)
    return _combined(program, rank, elements, mine, op)


def _moved(program: Program, rank: int, elements: int, mine: Any) -> Any:
    import torch
    import torch.distributed as dist

    shares = shard_elements(program.layout, elements)
    result = torch.empty(elements, dtype=mine.dtype, device=mine.device)
    if len(set(shares)) == 1:
        # torch 2.13 renamed it.
        gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
        gather(result.view(torch.uint8), mine.view(torch.uint8))
        return result
    begin = 0
    for owner, share in enumerate(shares):
        piece = result[begin : begin + share]
        begin += share
        if owner == rank:
            piece.copy_(mine)
        if len(piece):
            dist.broadcast(piece.view(torch.uint8), src=owner)
    return result


def _exchanged(program: Program, rank: int, elements: int, mine: Any) -> Any:
    import torch
    import torch.distributed as dist

    splits = _splits(program, rank, elements)
    result = torch.empty(sum(splits["output"]), dtype=mine.dtype, device=mine.device)
    wide = mine.element_size()
    takes, sends = ([wide * part for part in splits[name]] for name in ("output", "input"))
    dist.all_to_all_single(result.view(torch.uint8), mine.view(torch.uint8), takes, sends)
    return result


def _combined(program: Program, rank: int, elements: int, mine: Any, op: str) -> Reference:
    import torch
    import torch.distributed as dist

    kind, ranks = mine.dtype, program.num_ranks
    wide = torch.int64 if not (kind.is_floating_point or kind.is_complex) else torch.promote_types(kind, torch.float64)
    value = mine.to(wide, copy=True)
    own = {"avg": "sum"}.get(op, op)
    dist.all_reduce(value, op=getattr(dist.ReduceOp, {"prod": "PRODUCT"}.get(own, own.upper())))
    shares = shard_elements(program.layout, elements)
    begin = sum(shares[:rank])
    part = slice(None) if program.collective.has_two_phases else slice(begin, begin + shares[rank])
    if wide == torch.int64 or op in ("min", "max"):
        return Reference(value.to(kind)[part].clone(), None)
    size = value.abs()
    if op != "prod":
        size = mine.to(wide).abs()
        dist.all_reduce(size)
    tolerance = (ranks - 1) * torch.finfo(kind).eps * size
    if op == "avg":
        value, tolerance = value / ranks, ranks * torch.finfo(kind).eps * size / ranks
    return Reference(value[part].clone(), tolerance[part].clone())
