"""Where chunks stand: one row of them, and a range of it in every buffer."""

from __future__ import annotations

import pytest

from collopt.errors import ProgramError, UnsupportedError
from collopt.runtime.programs.layout import Layout


@pytest.mark.parametrize(
    ("collective", "shards", "inputs", "outputs"),
    [
        ("allgather", (), [(0, 2), (2, 4), (4, 6)], [(0, 6)] * 3),
        ("allgather", (1, 0, 5), [(0, 1), (1, 1), (1, 6)], [(0, 6)] * 3),
        ("reduce_scatter", (), [(0, 6)] * 3, [(0, 2), (2, 4), (4, 6)]),
        ("allreduce", (), [(0, 6)] * 3, [(0, 6)] * 3),
        ("broadcast", (0, 6, 0), [(0, 0), (0, 6), (6, 6)], [(0, 6)] * 3),
        ("reduce", (0, 6, 0), [(0, 6)] * 3, [(0, 0), (0, 6), (6, 6)]),
    ],
)
def test_buffers_hold_ranges(
    collective: str, shards: tuple[int, ...], inputs: list[tuple[int, int]], outputs: list[tuple[int, int]]
) -> None:
    """Six chunks on three ranks."""
    layout = Layout.of(collective, 3, 6, shards)
    assert [layout.input_range(rank) for rank in range(3)] == inputs
    assert [layout.output_range(rank) for rank in range(3)] == outputs
    assert layout.chunks == 6
    assert layout.root == (1 if collective in ("broadcast", "reduce") else None)
    assert layout.reduces == (collective in ("reduce_scatter", "allreduce", "reduce"))


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (("alltoall", 2, 2), UnsupportedError, "'alltoall'; expected one of allgather"),
        (("allgather", 0, 2), ProgramError, "0 ranks and 2 chunks"),
        (("allgather", 2, 0), ProgramError, "2 ranks and 0 chunks"),
        (("allgather", 2, 3), ProgramError, "multiple of its 2 ranks, or shards"),
        (("allreduce", 2, 3, (1, 2)), ProgramError, "belong to nobody"),
        (("allgather", 2, 3, (1, 1)), ProgramError, "shards"),
        (("all_to_all", 2, 6), ProgramError, "multiple of 4, its pairs of ranks, or shards"),
        (("all_to_all", 2, 8, (1, 3, 2, 2)), ProgramError, "expected all_to_allv"),
        (("all_to_allv", 2, 8, (4, 4)), ProgramError, "not those of 2 ranks"),
        (("broadcast", 2, 2), ProgramError, "several shards"),
        (("reduce", 2, 3, (1, 2)), ProgramError, "several shards"),
    ],
)
def test_refuses_what_does_not_add_up(arguments: tuple[object, ...], error: type[Exception], message: str) -> None:
    """One sentence each."""
    with pytest.raises(error, match=message):
        Layout.of(*arguments)


def test_parts_of_an_all_to_all_stand_in_rank_order() -> None:
    """Inputs hold rows of the matrix of parts, outputs columns."""
    layout = Layout.of("all_to_allv", 3, 18, (0, 2, 4, 2, 0, 0, 6, 2, 2))
    assert [layout.input_range(rank) for rank in range(3)] == [(0, 6), (6, 8), (8, 18)]
    assert layout.output_ranges(0) == ((0, 0), (6, 8), (8, 14))
    assert list(layout.output_chunks(1)) == [0, 1, 14, 15]
    assert layout.parts == (0, 1, 2, 1, 0, 0, 3, 1, 1)
    assert layout.blocks == layout.offsets
    assert (layout.reduces, layout.root) == (False, None)
    with pytest.raises(ProgramError, match="not a single range"):
        layout.output_range(0)
