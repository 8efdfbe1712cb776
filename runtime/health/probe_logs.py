"""Scripts that make the runs of a probe, with nccl-tests or torch.distributed, and the reader of their logs."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from importlib.resources import files
from statistics import median

import numpy as np

from ...errors import FileFormatError, UnsupportedError
from ...support.arrays import FloatArray
from ...support.files import name_of, read_text
from ...support.formatting import count_text
from ...topologies import Topology
from ..lowering.devices import boxes_of_nodes
from ..measuring.measured_times import MAX_BYTES, read_nccl_tests
from .probe_rounds import Run, rails_of

CYCLES = 5
"""Times that each run prints, by ``-N`` of nccl-tests (src/common.cu of a0b82b2, option run_cycles)."""
_HEADER = re.compile(r"^# collopt probe (\w+)\t(\d+)\t([^\t\n]+)\t([^\t\n]+)$", re.MULTILINE)
LAUNCHERS = {
    "mpirun.sh": (
        '< "${HOSTFILE:?names a file with the host of each box, one a line, in their order}"',
        'mpirun -np 2 --host "$1:1,$2:1" --map-by node --bind-to none',
        '-x "NCCL_IB_HCA==$3" -x "CUDA_VISIBLE_DEVICES=$4"',
    ),
    "slurm.sh": (
        '< <(scontrol show hostnames "${SLURM_JOB_NODELIST:?is set inside an allocation}")',
        'srun --overlap --nodes 2 --ntasks 2 --ntasks-per-node 1 --nodelist "$1,$2"',
        'env "NCCL_IB_HCA==$3" "CUDA_VISIBLE_DEVICES=$4"',
    ),
}
"""Where the hosts come from, and what starts a process on both.  NCCL_IB_HCA with a second = takes the exact name."""


def scripts(topology: Topology, runs: Iterable[Run], key: str, size: int) -> dict[str, str]:
    """Return the files that make runs, by name; rows of ``runs.txt`` are round, boxes, NIC and GPU by number, names."""
    boxes, rails = boxes_of_nodes(topology), rails_of(topology)
    members: dict[str, list[str]] = {}
    for gpu in topology.compute_nodes:
        members.setdefault(boxes[gpu], []).append(gpu)
    numbers = {box: number for number, box in enumerate(members)}
    nics = {nic: number for number, rail in enumerate(rails) for nic in rail}
    near = {link.tail: link.head for link in reversed(topology.links) if boxes.get(link.tail) == boxes.get(link.head)}
    table = ""
    for stage, (first, second) in runs:
        own, neighbor = members[boxes[first]], near.get(first, first)
        row = (stage, numbers[boxes[first]], numbers[boxes[second]], nics[first])
        table += "\t".join(map(str, (*row, own.index(neighbor) if neighbor in own else row[3], first, second))) + "\n"
    texts = {"runs.txt": table}
    names = (topology.device(rail[0]).name.replace("+", ",") for rail in rails)
    hcas = " ".join(name or f"mlx5_{number}" for number, name in enumerate(names))
    values = {"KEY": key, "SIZE": str(size), "CYCLES": str(CYCLES), "HCAS": hcas}
    for name, parts in LAUNCHERS.items():
        texts[name] = _filled("probe.sh.txt", values | dict(zip(("HOSTS", "LAUNCH", "SETTINGS"), parts, strict=True)))
    texts["torch_probe.py"] = _filled("probe_torch.py.txt", values)
    return texts


def _filled(template: str, values: Mapping[str, str]) -> str:
    text = (files(__package__) / template).read_text(encoding="utf-8")
    return re.sub("@([A-Z]+)@", lambda name: values[name[1]], text)


def read_rates(paths: Iterable[str | os.PathLike[str]], runs: Sequence[Run], key: str, size: int) -> FloatArray:
    """Read the rates of runs from one log for each, in GB/s: size over the median of its times.

    Raises `FileFormatError` if a log is none of these runs, cut short or of another size, and `UnsupportedError` if a
    run has no log or two.
    """
    expected = set(runs)
    sources: dict[Run, str] = {}
    rates: dict[Run, float] = {}
    for path in paths:
        where = name_of(path)
        header = _HEADER.search(read_text(path, MAX_BYTES))
        if header is None:
            raise FileFormatError(
                f"{where} has no line '# collopt probe'; expected a log that the probe's scripts write"
            )
        run = Run(int(header[2]), (header[3], header[4]))
        if header[1] != key or run not in expected:
            raise FileFormatError(f"{where} is of {run} of another probe; expected the logs of these rounds")
        if run in rates:
            raise UnsupportedError(f"{where} and {sources[run]} are both of {run}; keep one")
        times = read_nccl_tests(path).right()
        if sizes := {row.size for row in times.rows} - {size}:
            raise FileFormatError(f"{where} measures {min(sizes)} bytes; expected {size}, as the probe's scripts do")
        if times.collective not in (None, "sendrecv") or times.num_ranks not in (None, 2):
            raise FileFormatError(
                f"{where} is of {times.collective} on {times.num_ranks} ranks; expected sendrecv on 2"
            )
        if (cycles := sum(not row.in_place for row in times.rows)) < CYCLES:
            raise FileFormatError(f"{where} has {count_text(cycles, 'time')} of {CYCLES}: is it cut short?")
        sources[run] = where
        rates[run] = size / median(row.microseconds for row in times.rows) / 1e3
    if missing := [run for run in runs if run not in rates]:
        first = f"the first is {missing[0]}"
        raise UnsupportedError(
            f"{count_text(len(missing), 'run')} of {len(runs)} have no log; {first}: make these runs"
        )
    return np.array([rates[run] for run in runs])
