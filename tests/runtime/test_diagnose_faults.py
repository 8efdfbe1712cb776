"""Simulated faults are explained by a smallest set that holds the true one.

The simulation is arithmetic on the rates of NICs and GPUs: rings of equal shares, or the bound of the damaged network,
times an efficiency and noise.
"""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import NamedTuple

import pytest

import collopt
from collopt.runtime.health.diagnose import Diagnosis, diagnose
from collopt.topologies import Failure, Topology
from nccl_logs import A100, H100, MI300X, Machine, devices, header, info, noise, table, text

SEED = 0
GPUS = {A100: ("dgx-a100", 300.0, 25.0), H100: ("dgx-h100", 450.0, 50.0), MI300X: ("mi300x", 448.0, 50.0)}
INSIDE, OUTSIDE = 0.8, 0.95  # Efficiencies of healthy machines


class Fault(NamedTuple):
    """A case: machines, faults in the words of `Failure`, or a feature, and what the log shows of NCCL."""

    gpu: str
    hosts: int
    programs: tuple[str, ...]
    truth: str  # A failure, or words of a feature
    nccl: Machine | None = None
    busbw: float = 0.0  # Of features; of others by the model
    by_bound: bool = False


def rings(gpu: str, hosts: int, failure: str) -> float:
    """Bus bandwidth of rings whose channels have equal shares: the slowest NIC or GPU holds all of them up."""
    _, link, nic = GPUS[gpu]
    nics = [[nic] * 8 for _ in range(hosts)]
    gpus = [link] * (8 * hosts)
    for part in failure.split(" + "):
        name, _, factor = part.partition(" x ")
        left = float(Fraction(factor)) if factor else 0.0
        box, node = name.split("--")[0].removeprefix("box").split("/")
        if "nic" in name:
            number = int(name.partition("nic")[2].partition("--")[0])
            nics[int(box)][number] *= left
        elif node.startswith("gpu"):
            gpus[8 * int(box) + int(node.removeprefix("gpu"))] *= left if "nvswitch" in name else (6 + 0 * left) / 7
    alive = [[rate for rate in own if rate] for own in nics]
    outside = min(map(len, alive)) * min(map(min, alive)) if hosts > 1 else 1e9  # As many channels on all boxes
    return min(INSIDE * min(gpus), OUTSIDE * outside)


def healthy(case: Fault, program: str) -> float:
    """Bus bandwidth of machines without a fault."""
    name, link, nic = GPUS[case.gpu]
    if case.by_bound or program == "alltoall":
        return OUTSIDE * float(collopt.bound(collopt.topology(name, boxes=case.hosts), COLLECTIVES[program]).busbw)
    if program == "all_reduce" and case.gpu == H100 and case.hosts == 1:
        return 475.0
    return min(INSIDE * link, OUTSIDE * 8 * nic if case.hosts > 1 else 1e9)


COLLECTIVES = {
    "all_reduce": "allreduce",
    "all_gather": "allgather",
    "alltoall": "all_to_all",
    "reduce_scatter": "reduce_scatter",
}


def damaged(case: Fault, program: str) -> float:
    """Bus bandwidth with the fault."""
    if case.busbw:
        return case.busbw
    name = GPUS[case.gpu][0]
    if program == "alltoall" and not case.by_bound:  # The GPU of the slower NIC holds up all others
        return healthy(case, program) / 2
    if case.by_bound or program == "alltoall":
        network = collopt.topology(name, boxes=case.hosts)
        rest = Failure.read(network, case.truth).applied(network)
        return OUTSIDE * float(collopt.bound(rest, COLLECTIVES[program]).busbw)
    if program == "all_reduce" and case.gpu == H100 and case.hosts == 1:
        return 475.0 * rings(case.gpu, 1, case.truth) / (INSIDE * 450)
    return rings(case.gpu, case.hosts, case.truth)


def ring_log(hosts: int, **changes: object) -> Machine:
    """Lines of NCCL of some hosts."""
    return Machine(hosts, **{"nics": (8,) * hosts, **changes})  # type: ignore[arg-type]


AG, RS, AR, A2A = ("all_gather",), ("reduce_scatter",), ("all_reduce",), ("alltoall",)
SEVEN, SIX = tuple(range(7)), tuple(range(6))
CASES = {
    "nic lost, listed": Fault(H100, 2, AG, "box1/nic7", ring_log(2, nics=(8, 7), used=SEVEN, channels=7)),
    "nic lost": Fault(H100, 2, AG, "box1/nic3"),
    "nic lost, of four boxes": Fault(H100, 4, AG, "box2/nic3"),
    "nic at half": Fault(H100, 2, AG, "box0/nic2--ib x 1/2", ring_log(2)),
    "slot of a nic at half": Fault(H100, 2, RS, "box1/gpu5--box1/nic5 x 1/2", ring_log(2)),
    "nic at half, of four boxes": Fault(H100, 4, AG, "box3/nic2--ib x 1/2"),
    "nic at a quarter": Fault(H100, 2, AG, "box0/nic2--ib x 1/4", ring_log(2)),
    "two nics lost, listed": Fault(H100, 2, AG, "box1/nic6 + box1/nic7", ring_log(2, nics=(8, 6), used=SIX)),
    "two nics lost": Fault(H100, 2, AG, "box0/nic1 + box0/nic3"),
    "gpu's links at half": Fault(H100, 2, RS, "box1/gpu3--box1/nvswitch x 1/2", ring_log(2)),
    "gpu's links at a quarter": Fault(H100, 2, AG, "box1/gpu3--box1/nvswitch x 1/4", ring_log(2)),
    "gpu without nvlink": Fault(H100, 2, AG, "box0/gpu5--box0/nvswitch", None, 21.0),
    "sockets, in the log": Fault(H100, 2, AG, "sockets", ring_log(2, network="Socket", gdr=False), 5.1),
    "sockets": Fault(H100, 2, AG, "sockets", None, 1.1),
    "no gdr, in the log": Fault(H100, 2, AG, "GPUDirect", ring_log(2, gdr=False), 110.0),
    "no gdr": Fault(H100, 2, AG, "GPUDirect", None, 138.0),
    "a100 nic lost": Fault(A100, 2, AG, "box0/nic0"),
    "a100 nic at half": Fault(A100, 2, RS, "box1/nic2--ib x 1/2", ring_log(2)),
    "a100 slot at a quarter": Fault(A100, 2, AG, "box1/gpu2--box1/nic2 x 1/4", ring_log(2)),
    "a100 sockets": Fault(A100, 2, AG, "sockets", ring_log(2, network="Socket", gdr=False), 2.4),
    "a100 links at half": Fault(A100, 1, AR, "box0/gpu3--box0/nvswitch x 1/2", ring_log(1)),
    "a100 links at a quarter": Fault(A100, 1, AG, "box0/gpu6--box0/nvswitch x 1/4", ring_log(1)),
    "a100 through shared memory": Fault(A100, 1, AR, "host memory", ring_log(1, inner="SHM/direct"), 14.0),
    "a100 with two channels": Fault(A100, 1, AR, "2 channels", ring_log(1, channels=2), 38.0),
    "h100 without nvls, in the log": Fault(H100, 1, AR, "NVLS", ring_log(1, nvls=False), 362.0),
    "h100 without nvls": Fault(H100, 1, AR, "NVLS", None, 365.0),
    "h100 links at half": Fault(H100, 1, AR, "box0/gpu1--box0/nvswitch x 1/2", ring_log(1)),
    "mi300x link lost": Fault(MI300X, 1, AG, "box0/gpu1--box0/gpu4"),
    "all-to-all, nic at half": Fault(H100, 2, (*AG, *A2A), "box0/nic4--ib x 1/2"),
    "all-to-all, nic lost": Fault(H100, 2, (*AG, *A2A), "box0/nic4", by_bound=True),
}  # fmt: skip


def diagnosed(case: Fault, folder: Path, seed: int = SEED) -> Diagnosis:
    """Diagnose the simulated log beside that of healthy machines."""
    logs = []
    for number, rate in enumerate((damaged, healthy)):
        parts = []
        for place, program in enumerate(case.programs):
            busbw = rate(case, program) * noise(10 * seed + 2 * place + number)
            lines = info(case.nccl) if case.nccl and not number else []
            parts += [header(program), devices(case.hosts, case.gpu), lines, table(busbw, 8 * case.hosts, program)]
        logs.append(folder / f"{number}.txt")
        logs[-1].write_text(text(*parts))
    return diagnose(logs[0], reference=logs[1])


def signature(failure: str, network: Topology) -> list[tuple[bool, Fraction]]:
    """What a failure is, whatever its place."""
    faults = Failure.read(network, failure).faults
    return sorted((any("nic" in node for node in nodes), factor) for nodes, factor in faults)


def holds_truth(case: Fault, result: Diagnosis) -> bool:
    """Whether the true faults are among the explanations."""
    if "box" not in case.truth:
        return any(case.truth in words for entry in result.explanations for words in entry.faults)
    truth = signature(case.truth, result.topology)
    return any(
        signature(str(entry.failure), result.topology) == truth for entry in result.explanations if entry.failure
    )


@pytest.mark.parametrize("name", CASES)
def test_explanations_hold_the_true_fault(name: str, tmp_path: Path) -> None:
    """The smallest sets hold what the simulation broke."""
    result = diagnosed(CASES[name], tmp_path)
    assert result.verdict == "low"
    assert holds_truth(CASES[name], result)


def test_a_smaller_set_hides_a_larger_one(tmp_path: Path) -> None:
    """A NIC at half of its rate explains the run as well as that and a lost one, so it is what is said."""
    case = Fault(H100, 2, AG, "box0/nic1 + box1/nic5--ib x 1/2")
    first = diagnosed(case, tmp_path).explanations[0]
    assert first.faults == ("NIC box0/nic0, its cable or slot at 1/2 of its rate",)
    assert first.members == 16
