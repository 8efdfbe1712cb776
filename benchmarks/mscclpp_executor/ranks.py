"""Runs cases in processes, one for each rank, and judges what they report."""

from __future__ import annotations

import multiprocessing
import socket
from collections.abc import Sequence
from contextlib import closing
from multiprocessing.connection import Connection, wait
from typing import NamedTuple

from .rank import run_rank
from .reference import Case

START_SECONDS = 60.0
BATCH = 24
"""Cases that the same processes run; none of their memory is freed before they end."""


class Outcome(NamedTuple):
    """What a case did: "right", "wrong", "timeout" or "error"."""

    case: Case
    outcome: str
    detail: str


def run_batch(cases: Sequence[Case], seconds: float) -> list[Outcome]:
    """Run cases of one number of ranks up to the first that fails or makes no progress for so many seconds."""
    context = multiprocessing.get_context("spawn")
    address = f"lo:127.0.0.1:{_free_port()}"
    pipes, processes = [], []
    try:
        for rank in range(cases[0].ranks):
            pipe, end = context.Pipe(duplex=False)
            process = context.Process(target=run_rank, args=(rank, address, list(cases), end), daemon=True)
            process.start()
            end.close()
            pipes.append(pipe)
            processes.append(process)
        return collect(cases, pipes, seconds)
    finally:
        for process in processes:
            process.kill()
            process.join()


def collect(cases: Sequence[Case], pipes: Sequence[Connection], seconds: float) -> list[Outcome]:
    """Judge cases by what their ranks send, up to the first failure or silence of so many seconds."""
    outcomes: list[Outcome] = []
    stages = ["starting"] * len(pipes)
    results: list[list[list[str]]] = [[] for _ in pipes]
    while len(outcomes) < len(cases):
        case = cases[len(outcomes)]
        ready = wait(pipes, START_SECONDS if "starting" in stages else seconds)
        if not ready:
            return [*outcomes, Outcome(case, "timeout", f"ranks are {', '.join(stages)}")]
        for pipe in ready:
            assert isinstance(pipe, Connection)
            rank = pipes.index(pipe)
            try:
                kind, value = pipe.recv()
            except EOFError:
                kind, value = "error", f"the process ended while {stages[rank]}"
            if kind == "error":
                return [*outcomes, Outcome(case, "error", f"rank {rank}: {value}")]
            if kind == "stage":
                stages[rank] = value
            else:
                results[rank].append(value)
        while len(outcomes) < min(map(len, results)):
            problems = [problem for found in results for problem in found[len(outcomes)]]
            outcomes.append(Outcome(cases[len(outcomes)], "wrong" if problems else "right", "; ".join(problems[:3])))
    return outcomes


def _free_port() -> int:
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
