"""Hops of dispatches, made on all ranks of one process with numbers of tokens instead of tokens."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from collopt.planners import count_dispatch, schedule_dispatch
from collopt.planners.all_to_all.fast import STAGES
from collopt.runtime.all_to_allv.dispatch_rounds import ARRIVED, OWN, RankHops, packed, rank_hops, unpacked
from collopt.solvers.steps.dispatch import destination_masks, sorted_by_mask
from sample_sizes import examples

IntArray = npt.NDArray[np.int64]
TOKENS = 1000  # More than any rank has, so that rank * TOKENS + token is one number


def moved(every: list[RankHops], own: list[IntArray]) -> tuple[list[IntArray], IntArray]:
    """Make all hops, all ranks step by step; return what arrives on each, and rows from rank to rank."""
    areas = [{OWN: rows, ARRIVED: np.full(hops.sizes[ARRIVED], -1)} for rows, hops in zip(own, every, strict=True)]
    sent = np.zeros((len(own), len(own)), dtype=np.int64)
    steps = [dict(each.steps()) for each in every]
    assert [dict(each.steps(backwards=True)) for each in every] == steps
    for step in sorted({step for each in steps for step in each}):
        messages: dict[tuple[int, int], list[IntArray]] = {}
        for rank, each in enumerate(steps):
            for hop in each.get(step, []):
                assert hop.length, "a message is empty"
                if hop.is_send:
                    messages.setdefault((rank, hop.peer), []).append(areas[rank][hop.source][hop.of(every[rank].rows)])
                    sent[rank, hop.peer] += hop.length
        for rank, each in enumerate(steps):
            for hop in each.get(step, []):
                if not hop.is_send:
                    target = areas[rank].setdefault(hop.target, np.full(every[rank].sizes[hop.target], -1))
                    # Between two ranks messages match in the order in which they are posted.
                    target[hop.of(every[rank].rows)] = messages[hop.peer, rank].pop(0)
        assert not any(messages.values()), "a message was not received"
    return [each[ARRIVED] for each in areas], sent


def check(n: int, m: int, tokens: list[int], stages: str | None, cap: int | None, seed: int) -> None:
    """Every rank gets each token that it wants once; servers send as counted."""
    random = np.random.default_rng(seed)
    placement = random.permutation(np.repeat(np.arange(n * m), 2))
    indices = [random.integers(0, len(placement), (count, 3)) for count in tokens]
    counts = count_dispatch(indices, placement, servers=n, gpus_per_server=m)
    plan = schedule_dispatch(counts, stages=stages, max_stage_tokens=cap, relay_rounds=0)
    sorted_tokens = [sorted_by_mask(destination_masks(rows, placement, n, m), m) for rows in indices]
    kinds = np.array([histogram for histogram, _, _ in sorted_tokens])
    hops = [
        rank_hops(plan.rounds[0], rank, *sorted_tokens[rank][1:], np.ascontiguousarray(kinds[:, rank // m]))
        for rank in range(n * m)
    ]
    arrived, sent = moved(hops, [rank * TOKENS + np.arange(count) for rank, count in enumerate(tokens)])
    for rank, rows in enumerate(arrived):
        wanted = [
            origin * TOKENS + token
            for origin, chosen in enumerate(indices)
            for token in np.flatnonzero((placement[chosen] == rank).any(axis=1)).tolist()
        ]
        assert sorted(rows.tolist()) == wanted
    by_server = sent.reshape(n, m, n, m).sum(axis=(1, 3))
    np.fill_diagonal(by_server, 0)
    assert np.array_equal(by_server, plan.counts.by_server)
    outside = np.where(np.arange(n * m)[:, None] // m == np.arange(n * m) // m, 0, sent)
    assert max(outside.sum(axis=0).max(), outside.sum(axis=1).max()) <= plan.load


@settings(max_examples=examples(30))
@given(st.integers(1, 4), st.integers(1, 4), st.sampled_from([None, *STAGES]), st.integers(0, 2**32 - 1), st.data())
def test_every_token_arrives_once_where_it_is_wanted(
    n: int, m: int, stages: str | None, seed: int, data: st.DataObject
) -> None:
    """Ranks have any number of tokens, and stages any length and kind."""
    tokens = data.draw(st.lists(st.integers(0, 15), min_size=n * m, max_size=n * m))
    check(n, m, tokens, stages, data.draw(st.sampled_from([None, 1, 3])), seed)


@pytest.mark.parametrize("stages", [None, *STAGES])
def test_large_servers_work_too(stages: str | None) -> None:
    """Three servers of eight GPUs have very unequal batches."""
    check(3, 8, [200 if rank % 5 == 0 else 20 for rank in range(24)], stages, None, 1)


@pytest.mark.parametrize("rows", [0, 1, 3])
def test_rows_are_unpacked_wherever_their_values_begin(rows: int) -> None:
    """Single rows are aligned too, after a header of 12 bytes or 5 halves."""
    header = torch.arange(3 * rows, dtype=torch.int32).view(rows, 3)
    tokens = torch.arange(2 * rows, dtype=torch.float64).view(rows, 2)
    halves = torch.arange(5 * rows, dtype=torch.bfloat16).view(rows, 5)
    parts = [header, tokens, halves, tokens + 1]
    for part, found in zip(parts, unpacked(packed(parts), parts), strict=True):
        assert torch.equal(part, found)
