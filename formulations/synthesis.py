"""Fastest allgather with a limited number of steps, as an integer program over sends of chunks in steps.

A step lasts as long as its slowest link.  Few steps force data onto shortest paths, whatever the load; every further
step allows better balanced loads.

==================  ====================================================  ==================================
name                meaning                                               in terms of the paper
==================  ====================================================  ==================================
variables
``send``            whether a chunk goes from rank to rank in a step      ((v, C), (u, w), t) is in A
``duration``        how long a step takes, in ticks                       T_B(A_t)
constraints
``arrival``         every rank gets every chunk of every other once       Definition 4
``holding``         a rank passes on what it got in an earlier step       t_1 < t_2 < ... in Definition 4
``link_load``       a step lasts as long as its slowest link needs        section 3.2
==================  ====================================================  ==================================

The objective is the sum of the durations: T_B.  The words are those of the direct-connect paper, which prints no
program.  No chunk arrives twice, and what comes from v leaves u no earlier than it can be there;
docs/formulations/synthesis.md says why that loses nothing.  Switches pass chunks through within a step, over one given
way for each pair of ranks.

A chunk takes a whole number of *ticks* on every link, in inverse proportion to the link's bandwidth, so an absolute
optimality gap below one tick proves the optimum.  Stated in Pyomo: ``send[source, chunk, tail, head, step]``, only
where it can happen, and ``duration[step]``.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise, product
from math import lcm
from typing import Any, NamedTuple

from ..errors import UnsupportedError
from ..schedules.steps.step_schedule import Send, StepSchedule
from ..topologies import Topology
from .inputs import as_count, hop_distances
from .pyomo_model import PyomoModel, total

__all__ = ["SynthesisModel", "as_schedule", "build"]

MAX_TICKS = 10**6  # limit of ticks per chunk and link, beyond which solver tolerances are not small against a tick
MAX_SENDS = 10**6


Ways = Mapping[tuple[str, str], tuple[str, ...]]
"""Nodes from rank to rank, both ends among them, by the ends."""


class Sending(NamedTuple):
    """The index of a ``send``: `chunk` of `source` goes from rank `tail` to rank `head` in `step`."""

    source: str
    chunk: int
    tail: str
    head: str
    step: int


@dataclass(frozen=True, eq=False, repr=False)
class SynthesisModel(PyomoModel):
    """The integer program of an allgather in steps.

    Attributes
    ----------
    program : ConcreteModel
        ``program.ticks[tail, head]``, how long a chunk takes on a link, can be changed between two solves.
    topology : Topology
        The network that it is for.
    steps : int
        How many there may be; they count from 0.
    chunks : int
        Chunks per shard.
    tick : Fraction
        Length of a tick in ns per byte of shard: ``tick`` times the objective is `StepSchedule.inverse_rate`.
    ways : mapping of (tail, head) to tuple of str
        The nodes on the way of each pair of ranks that can send.
    """

    topology: Topology
    steps: int
    chunks: int
    tick: Fraction
    ways: Ways


def build(topology: Topology, *, steps: int, chunks: int, ways: Ways | None = None) -> SynthesisModel:
    """State the fastest allgather in a limited number of steps.

    The objective is the sum of the durations, in ticks.

    Parameters
    ----------
    topology : Topology
        Every rank reaches every other, and a chunk takes at most 10^6 ticks on any link.
    steps : int
        At least the diameter.
    chunks : int
        Chunks per shard; the program has at most 10^6 variables.
    ways : mapping of (tail, head) to tuple of str, optional
        Nodes on the way from rank to rank, of each pair that may send; the links by default, if there are no switches.
    """
    import pyomo.environ as pyo

    hops = hop_distances(topology, ways)
    ways = ways or {link[:2]: link[:2] for link in topology.links}
    chunks, steps, diameter = as_count(chunks, "chunks"), as_count(steps, "steps"), int(hops.max())
    if steps < diameter:
        raise UnsupportedError(f"steps is {steps}; expected at least {diameter}, the diameter of {topology}")
    ticks, tick = _ticks(topology, chunks)
    sendings = _sendings(topology, ways, hops.tolist(), steps, chunks)
    program = pyo.ConcreteModel(name=f"allgather on {topology.name} in {steps} steps with {chunks} chunks per shard")
    program.ticks = pyo.Param(list(ticks), initialize=ticks, mutable=True, within=pyo.PositiveReals)
    program.send = pyo.Var(sendings, domain=pyo.Binary)
    program.duration = pyo.Var(range(steps), domain=pyo.NonNegativeIntegers)
    model = SynthesisModel(program, topology, steps, chunks, tick, ways)
    incoming: dict[tuple[str, int, str], list[Sending]] = {}
    for sending in sendings:
        incoming.setdefault((sending.source, sending.chunk, sending.head), []).append(sending)
    _arrival(model, incoming)
    _holding(model, sendings, incoming)
    _link_load(model, sendings)
    model.minimize(total(program.duration.values()))
    return model


def as_schedule(model: SynthesisModel, sends: Mapping[tuple[str, int, str, str, int], float]) -> StepSchedule:
    """Convert a solution to a schedule.

    Steps in which nothing happens are left out; chunks of one source that go the same way in the same step and follow
    each other are one send.  The schedule is not verified.

    Parameters
    ----------
    model : SynthesisModel
        That was solved.
    sends : mapping of (source, chunk, tail, head, step) to float
        The values of ``send``.
    """
    rank = model.topology.node_index
    paths = {(rank[tail], rank[head]): tuple(rank[node] for node in way) for (tail, head), way in model.ways.items()}
    transfers = sorted(
        (step, rank[source], rank[tail], rank[head], chunk)
        for (source, chunk, tail, head, step), value in sends.items()
        if round(value)
    )
    used = sorted({step for step, *_ in transfers})
    merged: list[Send] = []
    for step, source, tail, head, chunk in transfers:
        send = Send(used.index(step), source, chunk, chunk + 1, paths[tail, head])
        if (
            merged
            and merged[-1]._replace(lower=0, upper=0) == send._replace(lower=0, upper=0)
            and merged[-1].upper == chunk
        ):
            send = send._replace(lower=merged.pop().lower)
        merged.append(send)
    return StepSchedule.from_sends(model.topology.num_ranks, model.chunks, merged)


def _ticks(topology: Topology, chunks: int) -> tuple[dict[tuple[str, str], int], Fraction]:
    """Return the ticks of a chunk on every link, and the length of a tick in ns per byte of shard."""
    capacities = topology.arrays.capacities.tolist()
    common = lcm(*capacities)
    if common > MAX_TICKS * min(capacities):
        raise UnsupportedError(
            f"a chunk would take {common // min(capacities)} ticks on the slowest link of {topology}; "
            f"expected at most {MAX_TICKS}: round the bandwidths"
        )
    ticks = {link[:2]: common // capacity for link, capacity in zip(topology.links, capacities, strict=True)}
    return ticks, 1 / (common * topology.arrays.unit * chunks)


def _sendings(topology: Topology, ways: Ways, hops: list[list[int]], steps: int, chunks: int) -> list[Sending]:
    """List all possible sends: none back to the source, and none from a rank before data can have arrived."""
    rank = topology.node_index
    usable = [
        (source, tail, head, first)
        for source, (tail, head) in product(topology.compute_nodes, ways)
        if head != source and (first := hops[rank[source]][rank[tail]]) < steps
    ]
    count = chunks * sum(steps - first for *_, first in usable)
    if count > MAX_SENDS:
        raise UnsupportedError(
            f"{chunks} chunks and {steps} steps on {topology} give {count} variables; expected at most {MAX_SENDS}"
        )
    return [
        Sending(source, chunk, tail, head, step)
        for source, tail, head, first in usable
        for chunk in range(chunks)
        for step in range(first, steps)
    ]


Incoming = Mapping[tuple[str, int, str], list[Sending]]


def _arrival(model: SynthesisModel, incoming: Incoming) -> None:
    """Sum over (w, u) and t of x(v, p, (w, u), t) = 1 for each rank u and each chunk p of each other rank v."""
    send = model.variables.send
    model.add_constraints(
        "arrival", list(incoming), rule=lambda *chunk_at: total(send[sending] for sending in incoming[chunk_at]) == 1
    )


def _holding(model: SynthesisModel, sendings: list[Sending], incoming: Incoming) -> None:
    """x(v, p, (u, w), t) <= sum over (r, u) and s < t of x(v, p, (r, u), s) unless u = v."""
    send = model.variables.send

    def rule(*key: Any) -> Any:
        sending = Sending(*key)
        earlier = (step for step in incoming[sending.source, sending.chunk, sending.tail] if step.step < sending.step)
        return send[sending] <= total(send[step] for step in earlier)

    passed_on = [sending for sending in sendings if sending.tail != sending.source]
    model.add_constraints("holding", passed_on, rule=rule)


def _link_load(model: SynthesisModel, sendings: list[Sending]) -> None:
    """Ticks(u, w) * sum over v and p of x(v, p, (u, w), t) <= duration(t) for each link (u, w) and step t."""
    send, duration, ticks = model.variables.send, model.variables.duration, model.program.ticks
    transfers: dict[tuple[str, str, int], list[Sending]] = {}
    for sending in sendings:
        for link in pairwise(model.ways[sending.tail, sending.head]):
            transfers.setdefault((*link, sending.step), []).append(sending)

    def rule(tail: str, head: str, step: int) -> Any:
        load = total(send[sending] for sending in transfers[tail, head, step])
        return ticks[tail, head] * load <= duration[step]

    model.add_constraints("link_load", list(transfers), rule=rule)
