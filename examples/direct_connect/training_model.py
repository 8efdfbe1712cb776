"""How long one iteration of training takes: computation, allreduce of gradients, and all-to-all around the experts.

The rules are those of appendix A.4 of the direct-connect paper (*Efficient Direct-Connect Topologies for Collective
Communications*), which copies how PyTorch's DistributedDataParallel overlaps.  Where it leaves something open, this is
what holds here:

- There are two streams.  Each does one thing at a time, in the order in which it was issued.
- The compute stream goes through the layers forward, then backward.
- The communication stream does all collectives, so an allreduce and an all-to-all never overlap.
- A layer with experts starts with an all-to-all to them and ends with one back, forward as well as backward: four per
  iteration.  The compute stream waits for each of them to end, which may mean waiting for an allreduce before it.
- A layer's gradients are ready when its backward computation ends.  They join the open bucket; once it holds its
  capacity, its allreduce is issued (before the layer's last all-to-all).  Gradients of one layer stay together, so a
  bucket may hold more than its capacity.  What is left after the last layer is a bucket too.
- The iteration ends when both streams are done.  Loading data and the optimizer's step are not in it.

Every time that is not computation or all-to-all is spent waiting for allreduces; that is the unoverlapped part.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

from analytic_baselines import all_to_all_us
from compute_trace import Layer, TraceTable, as_exact, read_compute_trace

from collopt.errors import TopologyError, UnsupportedError
from collopt.schedules import StepCost, as_bytes
from collopt.support.quantities import as_bandwidth, as_latency
from collopt.support.validation import as_list, as_size, shown

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "BUCKET_SIZES",
    "CommunicationTimes",
    "DirectConnectTimes",
    "Task",
    "TrainingIteration",
    "simulate_iteration",
]

BUCKET_SIZES = (2**20, 10 * 2**20, 100 * 2**20, 2**30)
"""Bytes; the paper tries 1 MB, 10 MB, 100 MB and 1 GB, in powers of two as everywhere else in it and in PyTorch."""

Kind = Literal["forward", "backward", "allreduce", "all-to-all"]
Stream = Literal["compute", "communication"]


class CommunicationTimes(Protocol):
    """What a simulated iteration asks about the network."""

    def allreduce_us(self, num_bytes: int) -> Fraction:
        """µs of an allreduce of so many bytes."""

    def all_to_all_us(self, num_bytes: int) -> Fraction:
        """µs of an all-to-all in which every rank sends so many bytes in all."""


@dataclass(frozen=True)
class DirectConnectTimes:
    """Times of collectives on a direct-connect network, by the formulas of the paper.

    Attributes
    ----------
    cost : StepCost
        Of the allgather; an allreduce is a reduce-scatter and an allgather, one after the other.
    rate : Fraction
        f of LP (3): what every node can send to every other at once if every link carries 1.  A float is read by its
        shortest decimal form.
    num_nodes, degree : int
        N and d.
    alpha : Fraction
        µs per step.
    node_bandwidth : Fraction
        B, in GB/s: all d ports of a node together.
    reduce_scatter_cost : StepCost, optional
        Of the reduce-scatter, where it costs something else than the allgather; see `Candidate.reduce_scatter_cost`.

    Raises
    ------
    UnsupportedError
        If a value makes no sense.

    Examples
    --------
    L^3(K(4, 4)) at N = 512; see Table 7:

    >>> times = DirectConnectTimes(StepCost(5, Fraction(133, 128)), 1.88e-3, 512, 4, alpha=10, node_bandwidth="12.5")
    >>> round(float(times.allreduce_us(2**20)), 1), round(float(times.all_to_all_us(2**20)), 1)
    (274.3, 348.6)
    """

    cost: StepCost
    rate: Fraction
    num_nodes: int
    degree: int
    alpha: Fraction
    node_bandwidth: Fraction
    reduce_scatter_cost: StepCost | None = None

    def __post_init__(self) -> None:
        """Check all values, and make them exact."""
        for cost in (self.cost, self.reduce_scatter_cost or self.cost):
            if not isinstance(cost, StepCost):
                raise UnsupportedError(f"the cost is {shown(cost)}; expected a StepCost")
        try:
            exact = {
                "rate": as_exact(self.rate, "the all-to-all rate"),
                "num_nodes": as_size(self.num_nodes, "num_nodes", low=2),
                "degree": as_size(self.degree, "degree"),
                "alpha": as_latency(self.alpha, "a step"),
                "node_bandwidth": as_bandwidth(self.node_bandwidth, "a node"),
            }
        except TopologyError as error:
            raise UnsupportedError(str(error)) from None
        if exact["rate"] == 0:
            raise UnsupportedError("the all-to-all rate is 0; expected a positive number")
        for name, value in exact.items():
            object.__setattr__(self, name, value)

    def allreduce_us(self, num_bytes: int) -> Fraction:
        """µs of an allreduce of so many bytes: T_L alpha + T_B M/B of the reduce-scatter and of the allgather."""
        parts = (self.reduce_scatter_cost or self.cost, self.cost)
        times = (part.runtime(num_bytes, alpha=self.alpha, node_bandwidth=self.node_bandwidth) for part in parts)
        return sum(times, Fraction(0))

    def all_to_all_us(self, num_bytes: int) -> Fraction:
        """µs of an all-to-all in which every node sends so many bytes: M/N at the rate f B/d."""
        return all_to_all_us(self.rate, self.num_nodes, self.degree, num_bytes, self.node_bandwidth)


class Task(NamedTuple):
    """What one stream does from `start_us` to `end_us`.

    `name`: The layer; of an allreduce, the last layer whose gradients are in its bucket.
    """

    stream: Stream
    kind: Kind
    name: str
    start_us: Fraction
    end_us: Fraction


@dataclass(frozen=True)
class TrainingIteration:
    """A simulated iteration.

    Attributes
    ----------
    bucket_bytes : int
        Capacity of the gradient buckets, the best of those tried.
    tasks : tuple of Task
        In the order in which they were issued; a collective that takes no time is in it too.
    """

    bucket_bytes: int
    tasks: tuple[Task, ...]

    @property
    def iteration_us(self) -> Fraction:
        """µs from the first layer's start to the end of both streams."""
        return max(task.end_us for task in self.tasks)

    @property
    def compute_us(self) -> Fraction:
        """µs of computation."""
        return self._total("forward") + self._total("backward")

    @property
    def all_to_all_us(self) -> Fraction:
        """µs of all-to-all, during which nothing else happens."""
        return self._total("all-to-all")

    @property
    def allreduce_us(self) -> Fraction:
        """µs of allreduce, hidden behind computation or not."""
        return self._total("allreduce")

    @property
    def unoverlapped_allreduce_us(self) -> Fraction:
        """µs in which the computation, if any is left, waits for an allreduce."""
        return self.iteration_us - self.compute_us - self.all_to_all_us

    @property
    def timeline(self) -> pd.DataFrame:
        """The tasks as a table with the columns stream, kind, name, start_us and end_us, these two as floats."""
        import pandas as pd

        rows = [(*task[:3], float(task.start_us), float(task.end_us)) for task in self.tasks]
        return pd.DataFrame(rows, columns=list(Task._fields))

    def _total(self, kind: Kind) -> Fraction:
        return sum((task.end_us - task.start_us for task in self.tasks if task.kind == kind), Fraction(0))


def simulate_iteration(
    trace: TraceTable, times: CommunicationTimes, *, bucket_sizes: Sequence[int | str] = BUCKET_SIZES
) -> TrainingIteration:
    """Simulate one iteration of training with the best bucket size.

    Parameters
    ----------
    trace : str, path, DataFrame, or iterable of mappings or Layers
        See `compute_trace.py`.
    times : CommunicationTimes
        Such as `DirectConnectTimes`; any object with these two methods will do.
    bucket_sizes : sequence of int or str, optional
        Bytes, such as ``2**20`` or ``"10M"``, to choose from; of equally good ones the smallest is taken.

    Returns
    -------
    TrainingIteration
        Exact if the times of the collectives are.

    Raises
    ------
    UnsupportedError, FileFormatError
        As for `read_compute_trace`; or if a bucket size is not a positive whole number, `times` has not both methods,
        or it gives a time that is negative or no number.

    Examples
    --------
    Two layers of 10 µs forward and 20 µs back; the allreduce of the second overlaps the first's way back:

    >>> layer = {"forward_us": 10, "backward_us": 20, "gradient_bytes": 1000, "all_to_all_bytes": 0}
    >>> times = DirectConnectTimes(StepCost(1, Fraction(1, 2)), 1, 2, 1, alpha=5, node_bandwidth=1)
    >>> iteration = simulate_iteration([{"name": "a", **layer}, {"name": "b", **layer}], times, bucket_sizes=[1000])
    >>> iteration.iteration_us, iteration.unoverlapped_allreduce_us
    (Fraction(71, 1), Fraction(11, 1))
    """
    _check_times(times)
    layers = read_compute_trace(trace)
    sizes = sorted(as_bytes(size) for size in _listed(bucket_sizes))
    return min((_run(layers, times, size) for size in sizes), key=lambda iteration: iteration.iteration_us)


def _check_times(times: object) -> None:
    """A protocol: anything with the two methods will do."""
    if not all(callable(getattr(times, name, None)) for name in ("allreduce_us", "all_to_all_us")):
        raise UnsupportedError(
            f"times is {shown(times)}; expected an object with the methods allreduce_us and all_to_all_us, such as "
            "DirectConnectTimes"
        )


def _listed(bucket_sizes: Sequence[int | str]) -> tuple[int | str, ...]:
    try:
        sizes = as_list([bucket_sizes] if isinstance(bucket_sizes, (int, str)) else bucket_sizes, "the bucket sizes")
    except TopologyError as error:
        raise UnsupportedError(str(error)) from None
    if not sizes:
        raise UnsupportedError("there are no bucket sizes to choose from; expected at least one number of bytes")
    return sizes


def _run(layers: Sequence[Layer], times: CommunicationTimes, bucket_bytes: int) -> TrainingIteration:
    """Issue everything in the order of the program; a stream that is busy makes it wait."""
    streams = _Streams(times)
    for layer in layers:
        streams.all_to_all(layer)
        streams.compute("forward", layer, layer.forward_us)
        streams.all_to_all(layer)
    gathered = 0
    for number, layer in enumerate(reversed(layers), start=1):
        streams.all_to_all(layer)
        streams.compute("backward", layer, layer.backward_us)
        gathered += layer.gradient_bytes
        if gathered >= bucket_bytes or (gathered and number == len(layers)):
            streams.allreduce(layer, gathered)
            gathered = 0
        streams.all_to_all(layer)
    return TrainingIteration(bucket_bytes, tuple(streams.tasks))


class _Streams:
    """Two streams, and until when each is busy."""

    def __init__(self, times: CommunicationTimes) -> None:
        self.times = times
        self.tasks: list[Task] = []
        self.free: dict[Stream, Fraction] = {"compute": Fraction(0), "communication": Fraction(0)}

    def compute(self, kind: Kind, layer: Layer, duration: Fraction) -> None:
        start = self.free["compute"]
        self._add("compute", kind, layer, start, duration)

    def allreduce(self, layer: Layer, num_bytes: int) -> None:
        """Issue an allreduce; the computation goes on."""
        duration = as_exact(self.times.allreduce_us(num_bytes), f"the time of the allreduce of {num_bytes} bytes")
        self._add("communication", "allreduce", layer, max(self.free.values()), duration)

    def all_to_all(self, layer: Layer) -> None:
        """Issue an all-to-all, if the layer needs one, and let the computation wait for it."""
        if layer.all_to_all_bytes:
            what = f"the time of the all-to-all of {layer.all_to_all_bytes} bytes"
            duration = as_exact(self.times.all_to_all_us(layer.all_to_all_bytes), what)
            self._add("communication", "all-to-all", layer, max(self.free.values()), duration)
            self.free["compute"] = self.free["communication"]

    def _add(self, stream: Stream, kind: Kind, layer: Layer, start: Fraction, duration: Fraction) -> None:
        self.free[stream] = start + duration
        self.tasks.append(Task(stream, kind, layer.name, start, start + duration))
