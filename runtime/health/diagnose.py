"""`diagnose`: whether the bandwidths in a log of nccl-tests are normal, what limits them, and what explains less."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from ...errors import FileFormatError, TopologyError, UnsupportedError
from ...schedules import ALLREDUCE, COLLECTIVES, Bound, Collective, Cut
from ...schedules.collective import as_collective
from ...support.files import name_of, read_text
from ...support.formatting import count_text, percentage_text, rate_text, set_text
from ...support.validation import shown
from ...topologies import Topology, dgx_spark
from ...topologies.builders import NetworkLike
from ...topologies.builders import topology as as_network
from ...topologies.switched.scale_out import FABRIC_LATENCY, Box, Nic, repeat_box
from ..lowering.devices import names_of_boxes
from ..measuring.measured_times import MAX_BYTES, MeasuredRow, MeasuredRun, collective_by_name, read_runs
from .channels import ChannelScore, score_rings, score_trees
from .expect import Expectation, SizeExpectation, expect
from .explanations import Explanation, Healthy, explain, run_to_tell_apart
from .measurements import EFA, known_box
from .nccl_log import NcclLog, read_graph_dump, read_nccl_log

if TYPE_CHECKING:
    import pandas as pd

VERDICTS = ("wrong data", "impossible", "low", "unknown", "normal")
"""Of a size, a run and a log, the worst first."""
COLUMNS = ("size in bytes", "busbw", "of the bound", "NCCL's model", "healthy machines")  # The verdict follows
PRODUCTS = {
    r"A100.*SXM|A100-SXM": "dgx-a100", r"H100.*(HBM3|SXM)": "dgx-h100", r"\bH200(?! NVL)": "dgx-h200",
    r"\bH20\b": "hgx-h20", r"\bGB200": "gb200-nvl72", r"\bGB300": "gb300-nvl72", r"\bB200": "dgx-b200",
    r"\bB300": "dgx-b300", r"V100-SXM": "dgx1-v100", "MI250": "mi250", "MI300X": "mi300x", "MI325X": "mi325x",
    "MI355X": "mi355x", "MI300A": "mi300a", r"H800(?!.*PCIe)": "hgx-h800", r"A800-SXM": "hgx-a800", "GB10": "dgx-spark",
    r"\b(L40S?|L20|L4)\b|RTX 4090|6000 Ada": "l40s", r"RTX PRO 6000|RTX 5090": "rtx-pro-6000",
}  # fmt: skip
"""Boxes of the catalogue by the names of their GPUs, as expressions; those without NVLink by their PCIe."""

BOX, NETWORK, NETWORK_TREES = (0.83, 1.1), (0.8, 0.98), (0.55, 0.9)
"""Shares of what NCCL's model predicts that healthy machines reach in a box, and between boxes by rings and by trees,
where none was measured.  In a box they are those of docs/reference/measurements.md; of NICs, NVIDIA's maintainers
expect 24 of 25 GB/s, and 46 to 48 of 50."""
SLACK = 0.95  # Of a twin, or of the least of these shares, below which a run is low
MAX_EXCESS = 20  # Times the bound, which no wrong description explains
LARGE = 2**24  # bytes; below, latency decides
STEADY = 2**28  # bytes, from which on bandwidths of a size stand for those of larger ones
STEADY_SIZES = (2**30, 2**33)
SIZES = (2**26, 2**20)  # That are judged beside the largest
COMPLETE = "keep its list of devices"
MAX_HOST_GPUS = 16
MIN_BREAK = 2**18  # bytes from which on a larger size has no less bandwidth on healthy machines
SETTINGS = (
    "NCCL_ALGO", "NCCL_PROTO", "NCCL_IB_DISABLE", "NCCL_IB_HCA", "NCCL_NET_GDR_LEVEL", "NCCL_P2P_DISABLE",
    "NCCL_P2P_LEVEL", "NCCL_SHM_DISABLE", "NCCL_NVLS_ENABLE", "NCCL_PXN_DISABLE", "NCCL_MAX_NCHANNELS",
    "NCCL_MIN_NCHANNELS",
)  # fmt: skip
"""Variables that change bandwidth, of which a note tells."""
MAX_RANKS = 64  # Beyond, expectations are computed for the largest size alone
TWIN = 0.03  # Relative difference of healthy twins


class SizeDiagnosis(NamedTuple):
    """One size of a run.

    Attributes
    ----------
    size : int
        Bytes as nccl-tests counts them.
    measured, bound : float
        Bus bandwidths in GB/s, as all others.
    nccl : float or None
        NCCL's model of its own algorithm; None of sizes without expectations, as `low` and `high`.
    low, high : float or None
        Healthy machines.
    verdict : str
        One of `VERDICTS`.
    """

    size: int
    measured: float
    bound: float
    nccl: float | None
    low: float | None
    high: float | None
    verdict: str

    @property
    def cells(self) -> tuple[str, ...]:
        """Texts below `COLUMNS`."""
        healthy = "" if self.low is None or self.high is None else f"{self.low:.0f} to {self.high:.0f}"
        model = "" if self.nccl is None else f"{self.nccl:.0f}"
        share = percentage_text(self.measured / self.bound)
        return str(self.size), f"{self.measured:.2f}", share, model, healthy, self.verdict


@dataclass(frozen=True)
class RunDiagnosis:
    """What a run shows.

    Attributes
    ----------
    collective : Collective
    ranks : int
    sizes : tuple of SizeDiagnosis
        All that were measured.
    expectation : Expectation
        Of some sizes, with the bound.
    verdict : str
        One of `VERDICTS`.
    reason : str
        In one sentence.
    compared : str
        What healthy machines are.
    channels : tuple of ChannelScore
        Rings and trees of NCCL, where the log lists them.
    root : int or None
        Of a broadcast or reduce.
    """

    collective: Collective
    ranks: int
    sizes: tuple[SizeDiagnosis, ...]
    expectation: Expectation
    verdict: str
    reason: str
    compared: str
    channels: tuple[ChannelScore, ...]
    root: int | None = None

    @property
    def limit(self) -> str:
        """The bound and its links in words."""
        proven = self.expectation.bound
        return f"{float(proven.busbw):.2f} GB/s proven: {cut_words(proven)}"

    @property
    def shown(self) -> tuple[SizeDiagnosis, ...]:
        """Sizes with expectations."""
        return tuple(row for row in self.sizes if row.size in {entry.size for entry in self.expectation.sizes})


@dataclass(frozen=True)
class Diagnosis:
    """What a log shows.

    Attributes
    ----------
    source : str
        The file.
    topology : Topology
        The network that its numbers were compared with.
    runs : tuple of RunDiagnosis
    explanations : tuple of Explanation
        Smallest sets of faults that explain runs that are low.
    next_run : str
        The run that tells these apart, or finds their place.
    notes : tuple of str
        What was assumed, left out, or stands out.
    """

    source: str
    topology: Topology
    runs: tuple[RunDiagnosis, ...]
    explanations: tuple[Explanation, ...]
    next_run: str
    notes: tuple[str, ...]

    @property
    def verdict(self) -> str:
        """The worst of all runs."""
        return min((run.verdict for run in self.runs), key=VERDICTS.index)

    @property
    def choice(self) -> str:
        """What the explanations are to each other; empty unless a run is low."""
        if all(run.verdict != "low" for run in self.runs):
            return ""
        if len(self.explanations) > 1:
            return "any of these explains it; the log cannot tell them apart:"
        return "this explains it:" if self.explanations else "no one or two faults of the common kinds explain it"

    def to_frame(self) -> pd.DataFrame:
        """Tabulate the sizes: one row for each run and size, with the columns of `SizeDiagnosis`."""
        import pandas as pd

        rows = [(run.collective.name, *size) for run in self.runs for size in run.sizes]
        return pd.DataFrame(rows, columns=["collective", *SizeDiagnosis._fields])


class _Run(NamedTuple):
    """A run as it was read."""

    log: NcclLog
    collective: Collective
    ranks: int
    best: dict[int, MeasuredRow]  # The faster of both readings of each size
    wrong_sizes: set[int]
    is_cut: bool
    root: int | None


def diagnose(
    log: str | os.PathLike[str],
    topology: NetworkLike | None = None,
    *,
    collective: str | Collective | None = None,
    graph: str | os.PathLike[str] | None = None,
    reference: str | os.PathLike[str] | None = None,
) -> Diagnosis:
    """Diagnose a log of nccl-tests or rccl-tests, with or without lines of ``NCCL_DEBUG=INFO``.

    Raises `FileFormatError` if the log cannot be read or mixes jobs, `TopologyError` if neither it nor a topology says
    what machines it is of, `UnsupportedError` if both do not fit or nothing was measured.

    Parameters
    ----------
    log : str or path
        One or several runs.
    topology : Topology, networkx.Graph, str or path, optional
        The network; by default the box of the catalogue that the log's GPUs are of, with the NICs that the log lists.
    collective : str or Collective, optional
        For tables that do not say.
    graph : str or path, optional
        File of ``NCCL_GRAPH_DUMP_FILE`` of one box, for rings that the log does not list.
    reference : str or path, optional
        Log of the same runs on healthy machines, to compare with instead of public measurements.
    """
    source, runs = name_of(log), _read(log, collective)
    twins = {} if reference is None else {run.collective: run.best for run in _read(reference, collective)}
    facts = next((run.log for run in runs if run.log.has_lines), runs[0].log)
    network, notes = (as_network(topology), []) if topology is not None else network_of(runs[0].log, source)
    notes += [f"the last row of {source} is cut short, and was left out"] * runs[-1].is_cut
    notes += [f"the log has an error: {run.log.errors[0]}" for run in runs if run.log.errors]
    for run in runs:
        settings = [f"{name}={value}" for name, value in sorted(run.log.settings.items()) if name in SETTINGS]
        notes += [f"the run had {', '.join(settings)}"] * bool(settings)
    diagnoses = []
    for run in runs:
        if run.ranks != network.num_ranks:
            raise UnsupportedError(
                f"{source} is of {count_text(run.ranks, 'rank')}, and {network.name} has {network.num_ranks}; "
                "describe the network of the log with --topology, --boxes and --ranks, or take a plan on it"
            )
        diagnoses.append(_diagnosed(run, network, twins.get(run.collective, {}), graph, notes))
    low = [run for run in diagnoses if run.verdict == "low"]
    explanations = explain(network, [_healthy(run) for run in low], facts) if low else ()
    next_run = run_to_tell_apart(explanations, len(names_of_boxes(network)), facts) if low else ""
    return Diagnosis(source, network, tuple(diagnoses), explanations, next_run, tuple(dict.fromkeys(notes)))


def _read(path: str | os.PathLike[str], collective: str | Collective | None) -> list[_Run]:
    source, runs = name_of(path), []
    for measured in read_runs(read_text(path, MAX_BYTES), source):
        log, times = read_nccl_log(measured.text, source), measured.times
        if not times.rows and not log.rings:
            continue
        ranks = times.num_ranks or len(log.devices) or len(next(iter(log.rings.values()), ()))
        if ranks < 2:
            what = "is of one rank, which sends nothing" if ranks else "does not say how many ranks there are"
            hint = f"build nccl-tests with MPI=1 and start it by mpirun, or give -g 8, and {COMPLETE}"
            raise UnsupportedError(f"{source} {what}; {hint}")
        own = _collective(measured, ranks, source, None if collective is None else as_collective(collective))
        roots = [row.root or 0 for row in times.rows]
        root = next(iter(roots), 0) if own.has_one_root else None
        if root is not None and root >= ranks:
            raise UnsupportedError(f"{source} has rows of root {root}, and {count_text(ranks, 'rank')}; {COMPLETE}")
        best: dict[int, MeasuredRow] = {}
        for row in times.rows:
            if root in (None, row.root or 0):  # Those of other roots are other runs
                best[row.size] = min(row, best.get(row.size, row), key=lambda entry: entry.microseconds)
        wrong_sizes = {row.size for row in times.rows if row.wrong_elements}
        runs.append(_Run(log, own, ranks, best, wrong_sizes, measured.is_cut, root))
    if not runs:
        raise FileFormatError(
            f"{source} has neither a table of nccl-tests nor rings of NCCL; expected all the output of a program of "
            "nccl-tests, such as all_reduce_perf"
        )
    return runs


def _collective(measured: MeasuredRun, ranks: int, source: str, stated: Collective | None) -> Collective:
    """Tell the collective by the header, the program or as stated, or where both bandwidths leave one only."""
    rows = measured.times.rows
    named = measured.times.collective or collective_by_name(measured.program)
    named = named or stated or (None if rows else ALLREDUCE)
    if isinstance(named, str):
        raise UnsupportedError(f"{source} measures {named}, which has no bound; give the log of a collective")
    ratios = [row.printed[1] / row.printed[0] for row in rows if row.printed and row.printed[0] > 1 and row.printed[1]]
    fits = [
        entry for entry in COLLECTIVES.values() if abs(float(entry.bus_factor(ranks)) - max(ratios, default=0)) < 0.02
    ]
    # Columns tell what the factor leaves open.
    has_root, reduces = any(row.root is not None for row in rows), any(row.redop not in ("", "none") for row in rows)
    likely = [entry for entry in fits if (entry.has_one_root, entry.reduces) == (has_root, reduces)]
    if named is None and len(likely) == 1:
        return likely[0]
    if named is None:
        hint = "give --collective, or collective= in Python"
        raise UnsupportedError(f"{source} does not say which collective it measures; {hint}")
    if ratios and named not in fits:
        raise UnsupportedError(
            f"{source} has a busbw that {named} on {ranks} ranks does not have; check its list of devices, and "
            "--collective where the log does not name one"
        )
    return named


def network_of(log: NcclLog, source: str) -> tuple[Topology, list[str]]:
    """Build the network of the catalogue that a log's GPUs are of, with the NICs that it lists; say what is assumed."""
    products = {product for _, product in log.devices.values()}
    names = {name for pattern, name in PRODUCTS.items() for product in products if re.search(pattern, product)}
    hosts = Counter(host for host, _ in log.devices.values())
    if len(names) != 1 or len(products) != 1:
        listing = ", ".join(map(shown, sorted(products))) or "no GPUs"
        raise TopologyError(f"{source} lists {listing}, which are not one kind of the catalogue; give --topology")
    (name,), per_host = names, max(hosts.values())
    if name == "dgx-spark" and len(log.devices) == len(hosts):
        return dgx_spark(len(hosts)), [f"assumed from the log: {count_text(len(hosts), 'DGX Spark')}, cabled in a ring"]
    box, notes = _with_nics(known_box(name), log)
    notes.append(f"assumed from the log: {name}, {count_text(len(hosts), 'host')}; if that is wrong, give --topology")
    if len(hosts) > 1 and not (log.nics or log.speeds or "Libfabric" in log.network):
        listing = f"{count_text(len(box.nics), 'NIC')} of {rate_text(Fraction(box.nics[0].bandwidth or 0))}"
        notes.append(f"the log lists no NICs, so {listing} per host are assumed")
    if box.gpus > MAX_HOST_GPUS:  # Racks of several hosts
        topology = repeat_box(box, -(-len(log.devices) // box.gpus))
        kept = list(topology.compute_nodes[: len(log.devices)])
    elif per_host > box.gpus or len(set(hosts.values())) > 1:
        raise TopologyError(
            f"hosts of {source} have {sorted(set(hosts.values()))} GPUs; give the network by --topology"
        )
    else:
        topology = repeat_box(box, len(hosts))
        kept = [f"box{host}/gpu{gpu}" for host in range(len(hosts)) for gpu in range(per_host)]
    return topology if len(kept) == topology.num_ranks else topology.restrict(kept), notes


def _with_nics(box: Box, log: NcclLog) -> tuple[Box, list[str]]:
    """Give a box the NICs of a log if its hosts agree on a number, or NCCL on a speed: a design, and no fault."""
    counts = {len(nics) for nics in log.nics.values()}
    if not box.nics or box.nics[0].bandwidth is None or len(counts) > 1:
        return box, []
    efa = EFA.get(box.name.rpartition("-")[2].upper()) if "Libfabric" in log.network else None
    listed = {nic.partition(":")[0] for nics in log.nics.values() for nic in nics}
    speeds = Counter(speed for nic, speed in log.speeds.items() if not listed or nic in listed)
    design = len(box.nics), Fraction(box.nics[0].bandwidth)
    usual = design if efa is None else (efa.nics, efa.rate)
    count = counts.pop() if counts else usual[0]
    rate = Fraction(speeds.most_common(1)[0][0], 8000) if speeds else usual[1]
    if efa is not None and count not in (usual[0], box.gpus):  # Some are gone, or the plugin joins several
        count = usual[0]
    if (speeds or efa) and count > box.gpus and count % box.gpus == 0:
        count, rate = box.gpus, rate * count / box.gpus
    if ((count, rate) == design and efa is None) or count not in (1, 2, 4, box.gpus):
        return box, []
    groups = [tuple(f"gpu{gpu}" for gpu in range(box.gpus) if gpu * count // box.gpus == nic) for nic in range(count)]
    note = f"assumed from the log: {count_text(count, 'NIC')} of {rate_text(rate)} per host{', of EFA' * bool(efa)}"
    latency = FABRIC_LATENCY if efa is None else efa.link_latency
    return replace(box, nics=tuple(Nic(gpus, rate, rate, latency=latency) for gpus in groups)), [note]


class _Range(NamedTuple):
    low: float | None = None
    high: float | None = None
    floor: float = 0.0  # Below it, a run is low
    is_measured: bool = False


def _diagnosed(
    run: _Run,
    network: Topology,
    twins: Mapping[int, MeasuredRow],
    graph: str | os.PathLike[str] | None,
    notes: list[str],
) -> RunDiagnosis:
    """Compare a run with the bound, NCCL's model, and healthy machines; add to the notes."""
    sizes = sorted(run.best) or [2**30]
    near = [min(sizes, key=lambda size: abs(size - target)) for target in SIZES]
    sizes_near = sorted({sizes[-1], *(near if network.num_ranks <= MAX_RANKS else ())})
    expectation = expect(network, run.collective, sizes=sizes_near, root=run.root)
    expected, limit = {row.size: row for row in expectation.sizes}, expectation.bound
    factor, rows = float(run.collective.bus_factor(run.ranks)), list[SizeDiagnosis]()
    healthy = _Range()
    for size, row in sorted(run.best.items()):
        measured, about = factor * size / row.microseconds / 1000, expected.get(size)
        healthy = _Range() if about is None else _healthy_range(about, expectation, twins.get(size), factor, run.root)
        verdict = "unknown" if healthy.low is None else "normal" if measured >= healthy.floor else "low"
        # The least bandwidth whose time is printed like this.
        if size / (row.microseconds + row.rounding) / 1000 > float(limit.algbw) * (1 + 1e-9):
            verdict = "impossible"
        verdict = "wrong data" if size in run.wrong_sizes else verdict
        model = about and about.nccl
        rows.append(SizeDiagnosis(size, measured, float(limit.busbw), model, healthy.low, healthy.high, verdict))
    verdict, reason = _verdict(rows, limit, run.log)
    notes += _breaks(rows)
    compared = "shares of NCCL's model that machines reach; no measurement of such machines at this size is known"
    if healthy.is_measured:
        compared = f"measurements of {', '.join(expectation.machines)}"
    compared = "the reference log" if sizes[-1] in twins else compared
    channels = _channels(run, limit, graph, notes)
    return RunDiagnosis(
        run.collective, run.ranks, tuple(rows), expectation, verdict, reason, compared, channels, run.root
    )


def _healthy_range(
    about: SizeExpectation, expectation: Expectation, twin: MeasuredRow | None, factor: float, root: int | None
) -> _Range:
    """Range of healthy machines at a size: of a twin, as others measured, or by NCCL's model."""
    network = expectation.topology
    if twin is not None:
        rate = factor * about.size / twin.microseconds / 1000
        return _Range(rate * (1 - TWIN), rate * (1 + TWIN), rate * SLACK)
    if about.low is None and about.size > STEADY and expectation.machines:
        rows = expect(network, expectation.collective, sizes=STEADY_SIZES, root=root).sizes
        about = next((row for row in rows[::-1] if row.low is not None and row.size <= 4 * about.size), about)
    if about.low is not None and about.high is not None and about.threshold is not None:
        return _Range(about.low, about.high, about.threshold, is_measured=True)
    if about.size < LARGE:
        return _Range()
    inside = len(names_of_boxes(network)) == 1
    shares = BOX if inside else NETWORK_TREES if "tree" in about.algorithm else NETWORK
    low, high = (share * (about.nccl or about.bound) for share in shares)
    return _Range(low, high, SLACK * low)


def _breaks(rows: Sequence[SizeDiagnosis]) -> Iterator[str]:
    """Say where a larger size has less than half of the bandwidth of a smaller one."""
    for before, after in pairwise(row for row in rows if row.size >= MIN_BREAK):
        if after.measured < before.measured / 2:
            rates = f"from {before.measured:.2f} GB/s at {before.size} bytes to {after.measured:.2f} at {after.size}"
            yield f"bandwidth falls {rates}: look for drops and pauses of switches, and try NCCL_PROTO=Simple and LL128"
            return


def _verdict(rows: Sequence[SizeDiagnosis], limit: Bound, log: NcclLog) -> tuple[str, str]:
    """Judge a run by its worst error, or by its largest size."""
    if not rows:
        return "unknown", "the log has no measured times"
    if errors := [row for row in rows if row.verdict == "wrong data"]:
        return "wrong data", f"#wrong is above 0 at {errors[0].size} bytes: results are wrong, so times say nothing"
    if excesses := [row for row in rows if row.verdict == "impossible"]:
        row = max(excesses, key=lambda entry: entry.measured)
        if row.measured > MAX_EXCESS * row.bound:
            return "impossible", (
                f"{row.measured:.4g} GB/s at {row.size} bytes is more than any machine has: the program measured no "
                "transfer. Look for errors in its output, and run it again without settings of NCCL."
            )
        sharp = any(choice.algorithm.startswith("CollNet") for choice in log.choices)
        where = " NCCL used SHARP, which the network does not describe." if sharp else ""
        return "impossible", (
            f"{row.measured:.2f} GB/s at {row.size} bytes is {row.measured / row.bound:.2f} times what the network as "
            f"described can carry.{where} So it is described wrong: {cut_words(limit)}. Check their number and speed."
        )
    last = rows[-1]
    if last.low is None:
        return "unknown", f"{last.size} bytes are too few to judge bandwidth; run with -e 8G"
    healthy = f"the {last.low:.0f} to {last.high:.0f} GB/s of healthy machines"
    text = f"{last.measured:.1f} GB/s at {last.size} bytes"
    if last.verdict == "low":
        return "low", f"{text} is {percentage_text(1 - last.measured / last.low)} below {healthy}"
    slow = (
        f"; slow at {count_text(count, 'smaller size')}" if (count := sum(row.verdict == "low" for row in rows)) else ""
    )
    place = f"beside {healthy}"
    if last.measured < last.low:
        deficit = percentage_text(1 - last.measured / last.low)
        place = f"{deficit} below {healthy}, as far as such measurements differ; a log of one by --reference tells more"
    return "normal", f"{text}, {place}{slow}"


def cut_words(limit: Bound) -> str:
    """Name the links that limit a collective."""
    witness, topology, collective = limit.witness, limit.topology, limit.collective
    if not isinstance(witness, Cut):
        return witness.reason(topology, collective)
    pairs = witness.view(topology, collective).links
    rate = rate_text(witness.crossing(topology, collective, limit.weights).bandwidth)
    tails, heads = (set_text({pair[end] for pair in pairs}) for end in (0, 1))
    carry = "carries" if len(pairs) == 1 else "together carry"
    return f"{count_text(len(pairs), 'link')} from {tails} to {heads} {carry} {rate}"


def _healthy(run: RunDiagnosis) -> Healthy:
    last = run.sizes[-1]
    assert last.low is not None
    assert last.high is not None
    middle = (last.low * last.high) ** 0.5
    return Healthy(run.collective, middle, last.high / middle - 1, last.nccl or last.bound, last.measured, run.root)


def _channels(
    run: _Run, limit: Bound, graph: str | os.PathLike[str] | None, notes: list[str]
) -> tuple[ChannelScore, ...]:
    """Score the rings and trees of a log, or of a dump of NCCL's search; note those that the network does not have."""
    log, boxes, scores = run.log, len(names_of_boxes(limit.topology)), list[ChannelScore]()
    rings, hops = log.rings, log.hops
    if graph is not None:
        text = read_text(graph, MAX_BYTES)
        rings, hops = read_graph_dump(text, name_of(graph), boxes, limit.topology.num_ranks // boxes)
    trees = log.trees if run.collective is ALLREDUCE else {}
    for channels, score in ((rings, score_rings), (trees, score_trees)):
        if channels and not run.collective.in_pairs:
            try:
                scores.append(score(channels, hops, limit))
            except UnsupportedError as error:
                notes.append(str(error))
    return tuple(scores)
