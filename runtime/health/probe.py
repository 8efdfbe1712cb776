"""Probes: rounds of pairwise runs that identify slow NICs, links and switches by the fewest runs."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, combinations
from typing import TYPE_CHECKING

import numpy as np

from ...errors import FileFormatError, UnsupportedError
from ...support.arrays import FloatArray
from ...support.files import name_of, read_json, write_all_whole
from ...support.quantities import as_bytes
from ...support.validation import as_list, as_path, as_whole, shown
from ...topologies import Topology
from ...topologies.builders import NetworkLike
from ...topologies.builders import topology as as_network
from ...topologies.network.topology_json import topology_from_json, topology_to_json
from .probe_identify import Identification, identify
from .probe_logs import read_rates, scripts
from .probe_rounds import Pair, Route, Routes, Run, rails_of, rounds_for

if TYPE_CHECKING:
    import pandas as pd

FORMAT, VERSION, FILE = "collopt-probe", 1, "probe.json"
MAX_FAULTS = 1000


@dataclass(frozen=True)
class Probe:
    """Rounds of runs between two NICs, in which no NIC has two runs at the same time.

    Attributes
    ----------
    topology : Topology
        The network.
    faults : int
        How many slow parts are assumed at most.
    size : int
        Bytes that each run exchanges, in both directions at once.
    rounds : tuple of tuple of pairs of str
        Runs by round: the names of two NICs, or of ranks that the network joins without any.
    stated : mapping of (str, str) to sequence of route, or None
        Routes of runs as nodes in a row; None for all shortest ones.
    """

    topology: Topology
    faults: int
    size: int
    rounds: tuple[tuple[Pair, ...], ...]
    stated: Mapping[Pair, Sequence[Route]] | None = None

    @cached_property
    def runs(self) -> tuple[Run, ...]:
        """All runs, in the order of rates."""
        return tuple(Run(number, pair) for number, pairs in enumerate(self.rounds) for pair in pairs)

    @cached_property
    def key(self) -> str:
        """Digest of network and size, by which logs name what they measure."""
        return hashlib.sha256(f"{self.topology.digest} {self.size}".encode()).hexdigest()[:12]

    @cached_property
    def routes(self) -> Routes:
        """Routes of runs through the network."""
        return Routes(self.topology, self.stated)

    def to_frame(self) -> pd.DataFrame:
        """Tabulate the runs: a row for each, with ``round``, ``first``, ``second`` and ``bandwidth`` in GB/s."""
        import pandas as pd

        rows = [(run.round, *run.ends, float(self.routes.bandwidth(run.ends))) for run in self.runs]
        return pd.DataFrame(rows, columns=["round", "first", "second", "bandwidth"])

    def write(self, folder: str | os.PathLike[str], *, first: int = 0) -> None:
        """Write the probe, and scripts that make its runs with nccl-tests or torch.distributed, into a folder.

        Parameters
        ----------
        folder : path
            New or empty.
        first : int
            The first round that the scripts make; logs of earlier ones exist.
        """
        target = as_path(folder)
        if target.is_dir() and any(target.iterdir()):
            raise UnsupportedError(f"the folder {target} is not empty; name another, or empty it")
        stated = None if self.stated is None else [[*pair, routes] for pair, routes in self.stated.items()]
        document = {"format": FORMAT, "version": VERSION, "faults": self.faults, "size": self.size}
        document |= {"rounds": self.rounds, "routes": stated, "topology": topology_to_json(self.topology)}
        runs = [run for run in self.runs if run.round >= first]
        texts = {FILE: json.dumps(document) + "\n", **scripts(self.topology, runs, self.key, self.size)}
        target.mkdir(exist_ok=True)
        write_all_whole({target / name: text for name, text in texts.items()})

    def read(self, logs: Iterable[str | os.PathLike[str]]) -> Identification:
        """Identify slow parts from the logs that the scripts wrote, one for each run.

        Raises `FileFormatError` if a log is of another probe, cut short or of another size, and `UnsupportedError` if a
        run has no log, no run is fast, or no slow parts explain the runs.
        """
        return self.identify(read_rates(as_list(logs, "the logs"), self.runs, self.key, self.size))

    def identify(self, rates: Sequence[float] | FloatArray) -> Identification:
        """Identify slow parts from the rates of `runs` in GB/s.

        Raises `UnsupportedError` if no run is fast, or no slow parts explain the runs.
        """
        values = np.asarray(rates, dtype=np.float64)
        if values.shape != (len(self.runs),) or not (np.isfinite(values) & (values > 0)).all():
            raise UnsupportedError(
                f"rates has shape {values.shape}; expected {len(self.runs)} positive numbers of GB/s"
            )
        return identify(self.runs, values, self.routes, self._candidates(), self.faults)

    def _candidates(self) -> Iterator[Pair]:
        """Yield the pairs that no run has had yet."""
        pairs = chain.from_iterable(combinations(rail, 2) for rail in rails_of(self.topology))
        met = {frozenset(run.ends) for run in self.runs}
        yield from (pair for pair in self.stated or pairs if frozenset(pair) not in met)

    def followed_by(self, pairs: Sequence[Pair]) -> Probe:
        """Add a round, such as `Identification.next_round`."""
        return replace(self, rounds=(*self.rounds, tuple(pairs)))


def probe(
    topology: NetworkLike,
    faults: int = 1,
    *,
    size: int | str = "256M",
    routes: Mapping[Pair, Sequence[Route]] | None = None,
) -> Probe:
    """Plan the rounds of pairwise runs that identify and measure up to `faults` slow NICs.

    There are ``faults + 1`` rounds, and one more with an odd number of boxes, of which one rests in each round.  Slow
    links and switches are identified as far as the runs tell them apart.

    Parameters
    ----------
    topology : Topology, str or path
        Boxes joined by NICs, or single ranks joined by switches.
    faults : int
        Slow parts that there may be at most.
    size : int or str
        Bytes that each run exchanges; a multiple of 4.
    routes : mapping of (str, str) to sequence of tuple of str, optional
        Routes that a run of two NICs may take, as nodes in a row; by default any of the shortest ones.

    Raises
    ------
    UnsupportedError
        If the boxes are too few to identify as many faults, or an argument is not of this form.
    TopologyError
        If no route joins two boxes, or a stated route does not follow links.

    Examples
    --------
    >>> import collopt
    >>> planned = collopt.probe(collopt.topology("dgx-h100", boxes=4), faults=2)
    >>> len(planned.rounds), planned.rounds[0][0]
    (3, ('box1/nic0', 'box2/nic0'))
    >>> rates = [30 if "box3/nic5" in run.ends else 48 for run in planned.runs]
    >>> planned.identify(rates).explanations
    (('box3/nic5',),)
    """
    network = as_network(topology)
    count, num_bytes = as_whole(faults, "faults", high=MAX_FAULTS), as_bytes(size)
    if num_bytes % 4:
        raise UnsupportedError(f"size is {num_bytes} bytes; expected a multiple of 4, as runs exchange floats")
    planned = Probe(network, count, num_bytes, rounds_for(rails_of(network), count), routes)
    for run in planned.runs:
        planned.routes.bandwidth(run.ends)
    return planned


def read_probe(folder: str | os.PathLike[str]) -> Probe:
    """Read the probe that `Probe.write` wrote into a folder; `FileFormatError` if it is none."""
    path = as_path(folder) / FILE
    data, where = read_json(path, FORMAT, VERSION), name_of(path)
    topology = topology_from_json(data.get("topology"), f"{where}, field topology")
    nics = {nic for rail in rails_of(topology) for nic in rail}
    try:
        rounds = tuple(tuple((first, second) for first, second in pairs) for pairs in data["rounds"])
        stated = data["routes"] and {
            (one, other): [tuple(nodes) for nodes in own] for one, other, own in data["routes"]
        }
        strays = {nic for pairs in rounds for pair in pairs for nic in pair} - nics
    except (KeyError, TypeError, ValueError):
        raise FileFormatError(f"{where} has rounds or routes of another form; expected those of a probe") from None
    if strays:
        raise FileFormatError(f"{where} has a run of {shown(min(strays))}, which is no NIC of its topology")
    faults = as_whole(data.get("faults"), f"{where}, field faults", high=MAX_FAULTS, error=FileFormatError)
    size = as_whole(data.get("size"), f"{where}, field size", low=4, high=10**18, error=FileFormatError)
    return Probe(topology, faults, size, rounds, stated)
