"""Rounds as permutations and tables of rows, run on numpy arrays, and the edge coloring that makes the permutations."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from runtime_forests import schedules
from runtime_rounds import run_as_rows

import collopt
from collopt.runtime import lower
from collopt.runtime.execution.execute import program_of
from collopt.runtime.execution.jax_function import edge_coloring, row_program
from collopt.schedules import TreeSchedule
from collopt.topologies import ring, torus
from sample_sizes import examples


@given(case=schedules(), elements=st.integers(0, 60), slices=st.integers(1, 4), most=st.integers(1, 9))
@settings(max_examples=examples(60))
def test_tables_do_every_collective_whatever_the_size(
    case: tuple[TreeSchedule, str], elements: int, slices: int, most: int
) -> None:
    """Shards are unequal; a permutation has each rank once at either end."""
    schedule, collective = case
    run_as_rows(lower(schedule, collective, max_count=most), elements, slices)


@pytest.mark.parametrize("slices", [1, 3])
def test_tables_exchange_parts(slices: int) -> None:
    """Parts of an all-to-all take several hops on a network without a switch."""
    run_as_rows(program_of(collopt.plan(torus(2, 4), "all_to_all")), 64 * 24, slices)


@given(edges=st.sets(st.tuples(st.integers(0, 7), st.integers(0, 7)), min_size=1))
@settings(max_examples=examples(100))
def test_edges_that_meet_have_different_colors(edges: set[tuple[int, int]]) -> None:
    """There are no more colors than edges at the busiest vertex."""
    colors = edge_coloring(edges)
    assert set(colors) == edges
    for end in (0, 1):
        assert max(Counter((edge[end], color) for edge, color in colors.items()).values()) == 1
    degrees = Counter((end, edge[end]) for edge in edges for end in (0, 1))
    assert len(set(colors.values())) == max(degrees.values())


def test_a_one_way_ring_takes_one_permutation_per_step() -> None:
    """Its rows are consecutive, and so need no gathers."""
    program = program_of(collopt.plan(ring(6, bidirectional=False), "allgather"))
    steps = row_program(program, 1, 6, 1, 6).steps
    assert [len([each for each in step.permutations if each.pairs]) for step in steps] == [1] * 5
    assert all(rows.consecutive for step in steps for each in step.permutations for rows in each[1:])
