"""The checker against schedules that are broken in one way each, and against a slow checker on random ones."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collopt.errors import CertificateError
from collopt.schedules import verified_loads
from collopt.schedules.steps import verify as step_verify
from collopt.schedules.steps.allreduce import StepAllreduce
from collopt.schedules.steps.step_schedule import Send, StepSchedule
from collopt.support import arrays
from collopt.topologies import Topology, ring
from oracles.slow_steps import step_loads_of, steps_hold
from sample_sizes import examples
from strategies import eulerian_topologies

TOPOLOGY = Topology.from_links(
    [("a", "s", 2), ("b", "s", 2), ("c", "s", 2), ("s", "t", 1)],
    compute=["a", "b", "c"],
    switches=["s", "t"],
    bidirectional=True,
)
"""Ranks a, b, c are nodes 0, 1, 2; switches s, t are 3, 4."""
SENDS = [
    Send(0, 0, 0, 4, (0, 3, 1)),
    Send(0, 1, 0, 1, (1, 3, 2)),
    Send(0, 1, 1, 4, (1, 3, 0)),
    Send(0, 2, 0, 4, (2, 3, 0)),
    Send(1, 2, 2, 4, (0, 3, 1)),
    Send(1, 1, 0, 1, (2, 3, 0)),
    Send(1, 1, 2, 4, (0, 3, 2)),
    Send(1, 2, 0, 2, (0, 3, 1)),
    Send(2, 1, 1, 2, (0, 3, 2)),
    Send(2, 0, 0, 4, (1, 3, 2)),
]
"""An allgather of shards of four chunks in three steps; no chunk comes twice."""


def schedule(**changes: Any) -> StepSchedule:
    """The correct schedule, with some fields replaced."""
    return replace(StepSchedule.from_sends(3, 4, SENDS), **changes)


def with_send(number: int, **changes: Any) -> StepSchedule:
    """The schedule with one send changed."""
    sends = [send._replace(**changes) if place == number else send for place, send in enumerate(SENDS)]
    return StepSchedule.from_sends(3, 4, sends)


def with_more(*sends: Send) -> StepSchedule:
    """The schedule with further sends."""
    return StepSchedule.from_sends(3, 4, [*SENDS, *sends])


def without(number: int) -> StepSchedule:
    """The schedule without one send."""
    return StepSchedule.from_sends(3, 4, [send for place, send in enumerate(SENDS) if place != number])


def changed(name: str, place: int, value: int) -> StepSchedule:
    """The schedule with one entry of an array replaced."""
    array = getattr(schedule(), name).copy()
    array[place] = value
    return schedule(**{name: array})


def test_loads_of_a_correct_schedule() -> None:
    """Added up by hand for the first step, by a slow count for all."""
    loads = verified_loads(schedule(), TOPOLOGY)
    first = dict(zip([link[:2] for link in TOPOLOGY.links], loads[0].tolist(), strict=True))
    assert {link: load for link, load in first.items() if load} == {
        ("a", "s"): 4, ("b", "s"): 4, ("c", "s"): 4, ("s", "a"): 7, ("s", "b"): 4, ("s", "c"): 1,
    }  # fmt: skip
    assert loads.tolist() == step_loads_of(schedule(), TOPOLOGY) == schedule().link_loads(TOPOLOGY).tolist()


Case = tuple[Callable[[], StepSchedule], str]

BAD_SHAPES: dict[str, Case] = {
    "another number of ranks": (lambda: schedule(num_ranks=4), "the schedule is for 4 ranks; the topology has 3$"),
    "no chunks": (lambda: schedule(chunks_per_shard=0), "the schedule has 0 chunks; expected at least 1"),
    "a direction that is none": (lambda: schedule(direction="sideways"), "the schedule's direction is 'sideways';"),
    "no sends": (lambda: StepSchedule.from_sends(3, 4, []), "the schedule has 0 sends; 3 ranks need at least 6$"),
    "too few sends": (lambda: StepSchedule.from_sends(3, 4, SENDS[:5]), "the schedule has 5 sends; 3 ranks need at"),
    "more chunks than can be added up": (
        lambda: schedule(chunks_per_shard=2**60),
        f"the schedule has {2**60} chunks; expected at least 1, and fewer than",
    ),
    "steps as floats": (lambda: schedule(steps=np.ones(10)), r"the schedule's steps are float64 of shape \(10,\);"),
    "a source too many": (lambda: schedule(sources=np.ones(11, np.int64)), "the schedule's sources are int64 of"),
    "routes in two dimensions": (lambda: schedule(routes=schedule().routes[:, None]), "the schedule's routes are"),
    "path starts as short integers": (
        lambda: schedule(path_starts=schedule().path_starts.astype(np.int16)),
        r"the schedule's path_starts are int16 of shape \(6,\); expected int64, \(6,\)$",
    ),
}

BAD_PATHS: dict[str, Case] = {
    "paths that start late": (lambda: changed("path_starts", 0, 1), "the schedule's path_starts do not cut its"),
    "paths that end early": (lambda: changed("path_starts", -1, 14), "the schedule's path_starts do not cut"),
    "no path": (
        lambda: schedule(path_starts=np.zeros(1, np.int64), path_nodes=np.zeros(0, np.int64)),
        "the schedule's path_starts do not cut",
    ),
    "a node beyond the topology": (lambda: changed("path_nodes", 3, 5), "path node 3 is not a node of the topology$"),
    "a negative node": (lambda: changed("path_nodes", 0, -1), "path node 0 is not a node of the topology$"),
    "a path from a switch": (lambda: with_send(0, path=(3, 1)), "path 0 does not run from a rank to a rank through"),
    "a path through a rank": (lambda: with_send(0, path=(0, 3, 2, 3, 1)), "path 0 does not run from a rank"),
    "a path that meets a switch again": (lambda: with_send(0, path=(0, 3, 4, 3, 1)), "path 0 passes a node twice$"),
    "a path without a link": (lambda: with_send(9, path=(1, 2)), "path 5 uses a link from 'b' to 'c', which does"),
}

BAD_SENDS: dict[str, Case] = {
    "a source beyond the ranks": (lambda: with_send(3, source=3), "send 3 has a source that is not a rank$"),
    "a negative source": (lambda: with_send(3, source=-1), "send 3 has a source that is not a rank$"),
    "a path that does not exist": (lambda: changed("routes", 2, 5), "send 2 has a route that is not a path$"),
    "chunks beyond the shard": (
        lambda: with_send(1, upper=5),
        "send 1 carries chunks 0 to 4 of the shard of rank 1; expected an interval of its 4$",
    ),
    "chunks before the shard": (lambda: with_send(1, lower=-1), "send 1 carries chunks -1 to 0"),
    "no chunks sent": (lambda: with_send(4, upper=2), "send 4 carries chunks 2 to 1"),
    "a step before the first": (lambda: with_send(5, step=-1), "send 5 happens before step 0$"),
    "steps that start late": (lambda: schedule(steps=schedule().steps + 1), "nothing is sent in step 0$"),
    "a step without sends": (lambda: schedule(steps=2 * schedule().steps), "nothing is sent in step 1$"),
    "a step far away": (lambda: with_send(9, step=2**61), "nothing is sent in step 3$"),
}

BAD_ORDERS: dict[str, Case] = {
    "a chunk passed on too early": (lambda: with_send(8, step=0), "in step 0 rank 0 sends chunks 1 to 1 of the"),
    "a chunk passed on in the step that brings it": (
        lambda: with_send(7, step=0),
        "in step 0 rank 0 sends chunks 0 to 1 of the shard of rank 2, but does not have them by then$",
    ),
    "one chunk too many": (lambda: with_send(5, upper=2), "in step 1 rank 2 sends chunks 0 to 1 of the shard of"),
    "one chunk too early": (lambda: with_send(6, lower=0), "in step 1 rank 0 sends chunks 0 to 3 of the shard of"),
    "the first of several": (
        lambda: with_more(Send(2, 1, 0, 1, (1, 3, 0)), Send(1, 2, 0, 1, (1, 3, 0)), Send(1, 0, 2, 4, (2, 3, 1))),
        "in step 1 rank 1 sends chunks 0 to 0 of the shard of rank 2, but does not have them by then$",
    ),
    "a chunk that nobody sends": (lambda: with_send(8, lower=0, upper=1), "rank 2 never gets chunk 1 of the shard"),
    "an end that nobody sends": (lambda: with_send(9, upper=3), "rank 2 never gets chunk 3 of the shard of rank 0$"),
    "a shard that nobody sends": (lambda: without(9), "rank 2 never gets chunk 0 of the shard of rank 0$"),
}

BROKEN = BAD_SHAPES | BAD_PATHS | BAD_SENDS | BAD_ORDERS


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_schedule_is_refused_for_what_is_wrong(case: str) -> None:
    """One message each, naming the send, path, step, rank or source."""
    broken, message = BROKEN[case]
    with pytest.raises(CertificateError, match="^" + message):
        verified_loads(broken(), TOPOLOGY)


def test_an_allgather_may_bring_a_chunk_twice() -> None:
    """A later arrival of the same chunk, or at its source, does no harm."""
    again = with_more(Send(2, 2, 0, 4, (0, 3, 1)), Send(2, 0, 1, 3, (1, 3, 0)), Send(0, 2, 1, 3, (2, 3, 0)))
    assert verified_loads(again, TOPOLOGY).tolist() == step_loads_of(again, TOPOLOGY)


def test_a_reduce_scatter_adds_no_chunk_twice() -> None:
    """The reversed schedule holds; one in which a rank would send its part twice does not."""
    loads = verified_loads(schedule(direction="reduce"), TOPOLOGY)
    assert loads.tolist() == step_loads_of(schedule(direction="reduce"), TOPOLOGY)
    for extra, message in (
        (Send(2, 2, 1, 3, (0, 3, 1)), "rank 1 would send chunk 1 of the shard of rank 2 2 times$"),
        (Send(1, 0, 3, 4, (1, 3, 0)), "rank 0 would send chunk 3 of the shard of rank 0 2 times$"),
    ):
        again = with_more(extra)
        verified_loads(again, TOPOLOGY)
        with pytest.raises(CertificateError, match="^" + message):
            verified_loads(replace(again, direction="reduce"), TOPOLOGY)


def test_a_reduce_scatter_needs_links_against_its_paths() -> None:
    """An allgather on a one-way ring cannot be reversed there."""
    topology = ring(3, bidirectional=False)
    sends = [(hop, rank, 0, 1, ((rank + hop) % 3, (rank + hop + 1) % 3)) for rank in range(3) for hop in range(2)]
    assert verified_loads(StepSchedule.from_sends(3, 1, sends), topology).tolist() == [[1, 1, 1]] * 2
    with pytest.raises(CertificateError, match="which does not exist"):
        verified_loads(StepSchedule.from_sends(3, 1, sends, "reduce"), topology)


def test_both_halves_of_an_allreduce_are_checked() -> None:
    """Their directions, and each for itself."""
    spread, added = schedule(), schedule(direction="reduce")
    both = verified_loads(StepAllreduce(added, spread), TOPOLOGY)
    assert both.tolist() == [*step_loads_of(added, TOPOLOGY), *step_loads_of(spread, TOPOLOGY)]
    for first, second in ((spread, spread), (added, added), (spread, added)):
        with pytest.raises(CertificateError, match="have the directions"):
            verified_loads(StepAllreduce(first, second), TOPOLOGY)
    with pytest.raises(CertificateError, match="never gets"):
        verified_loads(StepAllreduce(replace(without(9), direction="reduce"), spread), TOPOLOGY)


def routes(topology: Topology) -> Iterator[tuple[int, ...]]:
    """Every path from a rank to a rank through switches, none twice."""
    heads: dict[int, list[int]] = {node: [] for node in range(len(topology.nodes))}
    for tail, head in zip(topology.arrays.tails.tolist(), topology.arrays.heads.tolist(), strict=True):
        heads[tail].append(head)
    started = [(rank,) for rank in range(topology.num_ranks)]
    while started:
        path = started.pop()
        for head in heads[path[-1]]:
            if head < topology.num_ranks and head != path[0]:
                yield (*path, head)
            elif head >= topology.num_ranks and head not in path:
                started.append((*path, head))


def gossip(topology: Topology, chunks: int, dice: random.Random) -> list[Send]:
    """In every step some ranks send some interval that they hold along some paths, until everyone has everything."""
    ways = list(routes(topology))
    held = {(rank, rank): set(range(chunks)) for rank in range(topology.num_ranks)}
    sends: list[Send] = []
    step = 0
    while sum(map(len, held.values())) < chunks * topology.num_ranks**2:
        arriving = []
        for path in dice.sample(ways, dice.randint(1, len(ways))):
            source = dice.randrange(topology.num_ranks)
            lower = dice.randrange(chunks)
            upper = dice.randint(lower + 1, chunks)
            part = set(range(lower, upper))
            news = part - held.get((source, path[-1]), set())
            if part <= held.get((source, path[0]), set()) and (news or dice.random() < 0.1):
                sends.append(Send(step, source, lower, upper, path))
                arriving.append(((source, path[-1]), part))
        for key, part in arriving:
            held.setdefault(key, set()).update(part)
        step += bool(arriving)
    dice.shuffle(sends)
    return sends


@settings(max_examples=examples(300))
@given(topology=eulerian_topologies(max_ranks=4, max_switches=2), chunks=st.integers(1, 5), data=st.data())
def test_schedules_are_accepted_exactly_if_a_slow_checker_accepts_them(
    topology: Topology, chunks: int, data: st.DataObject
) -> None:
    """Random gossip, sometimes with an entry or two replaced, in both directions; loads are what a slow count says."""
    sends = gossip(topology, chunks, random.Random(data.draw(st.integers(0, 2**32))))
    for _ in range(data.draw(st.sampled_from([0, 0, 1, 2]))):
        place, field = data.draw(st.integers(0, len(sends) - 1)), data.draw(st.sampled_from(Send._fields[:4]))
        old = getattr(sends[place], field)
        sends[place] = sends[place]._replace(**{field: old + data.draw(st.sampled_from([-1, 1]))})
    for direction in ("broadcast", "reduce"):
        made = replace(StepSchedule.from_sends(topology.num_ranks, chunks, sends), direction=direction)
        if steps_hold(made, topology):
            assert verified_loads(made, topology).tolist() == step_loads_of(made, topology)
        else:
            with pytest.raises(CertificateError):
                verified_loads(made, topology)


def answer(made: StepSchedule, topology: Topology, block: int = step_verify.BLOCK, dense: int = arrays.DENSE) -> object:
    """The loads, or why the schedule is refused, with other sizes of blocks and tables."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(step_verify, "BLOCK", block)
        patch.setattr(arrays, "DENSE", dense)
        try:
            return verified_loads(made, topology).tolist()
        except CertificateError as refusal:
            return str(refusal)


@pytest.mark.slow
@settings(max_examples=examples(200))
@given(topology=eulerian_topologies(max_ranks=5, max_switches=1), chunks=st.integers(1, 5), data=st.data())
def test_sources_are_looked_at_one_by_one_or_together_with_the_same_answer(
    topology: Topology, chunks: int, data: st.DataObject
) -> None:
    """The first fault of all is named, in whichever block it is, and whether places are found by a table or sorted."""
    sends = gossip(topology, chunks, random.Random(data.draw(st.integers(0, 2**32))))
    for _ in range(data.draw(st.integers(0, 4))):
        place, field = data.draw(st.integers(0, len(sends) - 1)), data.draw(st.sampled_from(Send._fields[:2]))
        old = getattr(sends[place], field)
        sends[place] = sends[place]._replace(**{field: max(0, old + data.draw(st.sampled_from([-1, 1])))})
    for direction in ("broadcast", "reduce"):
        made = replace(StepSchedule.from_sends(topology.num_ranks, chunks, sends), direction=direction)
        together = answer(made, topology)
        for block in (1, 3 * topology.num_ranks + len(sends) // 2):
            for dense in (0, 100):
                assert answer(made, topology, block, dense) == together


def test_the_first_fault_is_named_wherever_its_block_comes() -> None:
    """Early sends are sorted by step, missing and repeated chunks by source; early sends come first."""
    early = with_more(Send(1, 0, 2, 4, (2, 3, 1)), Send(0, 2, 0, 1, (1, 3, 0)))
    missing = StepSchedule.from_sends(3, 4, [*SENDS[:4], *SENDS[5:9], Send(2, 2, 0, 1, (1, 3, 2))])
    again = with_more(Send(2, 2, 1, 3, (0, 3, 1)), Send(1, 0, 3, 4, (1, 3, 0)))
    for made, message in (
        (early, "in step 0 rank 1 sends chunks 0 to 0 of the shard of rank 2, but does not have them by then"),
        (missing, "rank 2 never gets chunk 0 of the shard of rank 0"),
        (replace(again, direction="reduce"), "rank 0 would send chunk 3 of the shard of rank 0 2 times"),
    ):
        assert answer(made, TOPOLOGY) == message == answer(made, TOPOLOGY, block=1)


def test_a_source_that_sends_nothing_is_missed() -> None:
    """A block without sends still lacks its shards."""
    silent = StepSchedule.from_sends(3, 4, [send for send in SENDS if send.source != 2] + SENDS[:1])
    expected = "rank 0 never gets chunk 0 of the shard of rank 2"
    assert answer(silent, TOPOLOGY) == expected == answer(silent, TOPOLOGY, block=1)


def test_places_fit_64_bits_up_to_the_largest_number_of_chunks() -> None:
    """Two ranks and as many chunks as are let through."""
    whole = 2**61 - 1
    most = StepSchedule.from_sends(2, whole, [(0, 0, 0, whole, (0, 1)), (0, 1, 0, whole, (1, 0))])
    assert verified_loads(most, ring(2)).sum() == 2 * whole
