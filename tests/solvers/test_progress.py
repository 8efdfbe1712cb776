"""Progress of long computations, as it is reported to callbacks."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import networkx as nx
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collopt.errors import SolverError
from collopt.formulations import Blocks
from collopt.planners import plan
from collopt.solvers import HighsOptions, Progress, solve
from collopt.solvers.flows.bottleneck import bottleneck_cut, fixed_count_scale
from collopt.solvers.lp import options as callbacks
from collopt.solvers.trees.batch_packing import pack_in_batches
from collopt.solvers.trees.strength import orient, strength
from collopt.solvers.trees.switch_removal import remove_all_switches, split_all_switches
from collopt.solvers.trees.tree_packing import pack_trees
from collopt.support import progress
from collopt.topologies import Topology, fat_tree, ring

Integers = npt.NDArray[np.int64]


class Heard(NamedTuple):
    """What was told: each count from its 0 on, and all texts."""

    counts: list[list[tuple[int, int]]]
    texts: list[str]


@contextmanager
def heard_within() -> Iterator[Heard]:
    """Listen, and check that each count rises to its total, which it never leaves."""
    heard = Heard([], [])

    def count(done: int, total: int) -> None:
        if done == 0:
            assert not heard.counts or heard.counts[-1][-1][0] == heard.counts[-1][-1][1], "a count within a count"
            heard.counts.append([])
        heard.counts[-1].append((done, total))

    with progress.listening(count, heard.texts.append):
        yield heard
    for steps in heard.counts:
        assert all(before < after for (before, _), (after, _) in itertools.pairwise(steps))
        assert {total for _, total in steps} == {steps[-1][0]}


def irregular(ranks: int) -> Topology:
    """Four links at each rank, in no order."""
    graph = nx.random_regular_graph(4, ranks, seed=1)
    nx.set_edge_attributes(graph, 25, "bandwidth")
    return Topology.from_networkx(graph)


def direct(topology: Topology, supply: int = 1) -> tuple[int, Integers, Integers, Integers, Integers]:
    """Nodes, links, and equal weights."""
    tails, heads, capacities, _ = topology.arrays
    return len(topology.nodes), tails, heads, capacities, np.full(topology.num_ranks, supply)


def critical(topology: Topology) -> tuple[int, Integers, Integers, Integers, Integers]:
    """The same, with capacities and supplies scaled until these just fit."""
    nodes, tails, heads, capacities, weights = direct(topology)
    best = bottleneck_cut(nodes, tails, heads, capacities, weights)
    return nodes, tails, heads, capacities * best.supply, weights * best.capacity


def once(topology: Topology) -> tuple[int, int, Integers, Integers, Integers]:
    """Two-way links, each once."""
    tails, heads, capacities, _ = topology.arrays
    kept = tails < heads
    return len(topology.nodes), topology.num_ranks, tails[kept], heads[kept], capacities[kept]


def square(topology: Topology) -> tuple[Integers, Integers, int]:
    """Arguments of the ways to remove switches."""
    nodes, tails, heads, capacities, supplies = critical(topology)
    between = np.zeros((nodes, nodes), dtype=np.int64)
    between[tails, heads] = capacities
    return between, supplies, len(supplies)


def packed() -> Any:
    """Pack a forest."""
    return pack_trees(*critical(irregular(32)))


def packed_in_batches() -> Any:
    """Pack it by batches, with tests in the end."""
    return pack_in_batches(*critical(irregular(32)))


def oriented() -> Any:
    """Orient links."""
    network = once(irregular(80))
    return orient(*network, strength(*network))


def knapsack() -> Blocks:
    """An integer program that takes long."""
    random = np.random.default_rng(0)
    blocks = Blocks("knapsack")
    taken = blocks.variables("taken", 60, upper=5, integral=True)
    sizes = random.integers(1, 100, (40, 60))
    blocks.constraint("room", 40, [(np.arange(40)[:, None], taken, sizes)], upper=sizes.sum(axis=1) // 2)
    blocks.maximize([(taken, random.integers(1, 100, 60))])
    return blocks


def uneven() -> Topology:
    """A ring whose links have many different bandwidths."""
    return ring(6).derate("gpu0", "gpu1", "99991/100003").derate("gpu3", "gpu4", "10007/10009")


STAGES: dict[str, tuple[Callable[[], Any], list[int]]] = {
    "bottleneck": (lambda: bottleneck_cut(*direct(irregular(80))), [80]),
    "fixed count": (lambda: fixed_count_scale(*direct(uneven()), 2), [6, 6, 4]),
    "switch guesses": (lambda: remove_all_switches(*square(fat_tree(4))), [16, 20, 16]),
    "edge splitting": (lambda: split_all_switches(*square(fat_tree(4))), [16, 20]),
    "tree packing": (packed, [32, 32, 128]),
    "packing by batches": (packed_in_batches, [32, 32]),
    "orientation": (oriented, [80, 80, 80, 80]),
}
"""Work, and the totals of what it counts, from one count to the next."""


def as_plain(found: Any) -> Any:
    """Turn what was found into what `==` compares."""
    if isinstance(found, np.ndarray):
        return found.tolist()
    return [as_plain(each) for each in found] if isinstance(found, (tuple, list)) else found


@pytest.mark.parametrize("stage", STAGES)
def test_counts_of_stages_rise_to_their_totals(stage: str) -> None:
    """And listening changes nothing."""
    work, totals = STAGES[stage]
    alone = work()
    with heard_within() as heard:
        listened = work()
    before = [list(steps) for steps in heard.counts]
    assert [steps[-1][0] for steps in heard.counts] == totals
    assert as_plain(listened) == as_plain(alone)
    work()
    assert heard.counts == before, "nobody listens any more"


def test_integer_programs_tell_the_best_answer_and_its_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the nodes of the search; a listener of the solve itself is called as well."""
    monkeypatch.setattr(callbacks, "SECONDS_BETWEEN_CALLS", 0)
    own: list[Progress] = []

    def until_any(told: Progress) -> bool:
        own.append(told)
        return told.best is None

    with heard_within() as heard:
        solve(knapsack(), HighsOptions(progress=until_any))
    assert f" nodes, best {own[-1].best:.6g}, bound {own[-1].bound:.6g}" in heard.texts[-2]
    assert len(own) == len(heard.texts) - 1
    assert heard.texts[-1] == ""


@pytest.mark.parametrize("fatal", [1, 5])
def test_an_error_of_a_listener_comes_out_and_breaks_nothing(fatal: int) -> None:
    """Whichever call it is; the listener is not called again, and later counts start anew."""
    calls = 0

    def refuse(done: int, total: int) -> None:
        nonlocal calls
        calls += 1
        if calls >= fatal:
            raise LookupError(f"{done} of {total}")

    topology = irregular(64)
    alone = plan(topology, "allgather")
    with progress.listening(refuse, lambda text: None), pytest.raises(LookupError, match=" of "):
        plan(topology, "allgather")
    assert calls == fatal
    with heard_within() as heard:
        again = plan(topology, "allgather")
    assert heard.counts[0][0] == (0, 64)
    assert np.array_equal(again.trees.forests[0].routes, alone.trees.forests[0].routes)


@given(st.integers(2, 99), st.lists(st.integers(-5, 120), max_size=20))
def test_a_counter_never_falls_nor_passes_its_total(total: int, told: list[int]) -> None:
    """Whatever it is given."""
    with heard_within() as heard, progress.task(total) as reached:
        for done in told:
            reached(done)
    assert heard.counts[0][-1] == (total, total)


def fail_at_work() -> None:
    """Say how far it is, then fail."""
    with progress.status() as say:
        say("3 nodes")
        raise SolverError("no answer")


def test_what_is_said_within_follows_what_is_said_around() -> None:
    """And goes with its context, also where that fails."""
    with heard_within() as heard:
        with progress.status() as say:
            say("round 1")
            with pytest.raises(SolverError):
                fail_at_work()
        list(progress.iterate("abc", 3))
    assert heard.texts == ["round 1", "round 1, 3 nodes", "round 1", ""]
