"""`collopt run` in processes that somebody else started, as torchrun does."""

from __future__ import annotations

import signal
import socket
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

import collopt
from cli_calls import Answer, process, refusal
from collopt.topologies import ring
from forked_programs import ForkedProgram


@pytest.fixture(scope="module")
def plan_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A plan for two ranks."""
    path = tmp_path_factory.mktemp("plans") / "pair.json"
    collopt.plan(ring(2, bandwidth=25), "allgather").save(path)
    return path


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def variables(rank: int, port: int, **others: str) -> dict[str, str]:
    """What a launcher on this machine sets for one of two ranks."""
    return {
        "RANK": str(rank),
        "WORLD_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "GLOO_SOCKET_IFNAME": "lo",
        **others,
    }


def start(rank: int, port: int, *words: object) -> ForkedProgram:
    """Start one of two ranks."""
    return ForkedProgram("-m", "collopt", *words, environment=variables(rank, port))


def answers(ranks: Sequence[ForkedProgram]) -> list[Answer]:
    """Wait for all ranks."""
    return [rank.answer() for rank in ranks]


@pytest.mark.slow
def test_two_processes_run_the_plan_and_the_first_one_prints(plan_file: Path) -> None:
    """Rank 0 prints one report, and no rank writes to standard error."""
    port = free_port()
    first, second = answers([start(rank, port, "run", plan_file, "--repeats", 1) for rank in range(2)])
    assert (first.status, second.status) == (0, 0)
    assert first.out.startswith("gloo, 2 ranks, 65536 float32 each: correct on all ranks")
    assert first.out.count("\n") == 1
    assert (first.err, second.err, second.out) == ("", "", "")


@pytest.mark.slow
def test_ranks_with_different_options_all_say_so(plan_file: Path) -> None:
    """Gloo would end such processes without a word of ours."""
    port = free_port()
    for answer in answers([start(rank, port, "run", plan_file, "--elements", 10 + rank) for rank in range(2)]):
        assert refusal(answer, status=1) == (
            "the ranks disagree about elements: 10, 11; start all with the same plans and options"
        )


@pytest.mark.slow
def test_a_rank_that_dies_is_told_by_the_other(plan_file: Path) -> None:
    """A rank killed in the middle of a run is reported by the other."""
    port = free_port()
    first, second = (start(rank, port, "run", plan_file, "--repeats", 10**6, "--timeout", 20) for rank in range(2))
    time.sleep(3)
    second.send_signal(signal.SIGKILL)
    told, killed = answers([first, second])
    assert killed.status == -signal.SIGKILL
    # How far they had come by then, on a machine with other work, decides how it goes on.
    assert refusal(told, status=1).startswith("rank 0 ")


@pytest.mark.slow
def test_a_rank_that_stays_alone_gives_up_in_one_line(plan_file: Path) -> None:
    """Within its time, with the place where the ranks were to meet.

    Not forked, as torch, which would log more, is told so when it is imported.
    """
    environment = variables(0, free_port())
    told = refusal(process("run", plan_file, "--timeout", 2, **environment), status=1)
    # Torch's words or ours, whichever comes first.
    assert told.startswith("rank 0 of 2 ")
    assert f"{environment['MASTER_ADDR']}:{environment['MASTER_PORT']}" in told


@pytest.mark.slow
def test_a_port_that_is_taken_is_told_by_the_first_rank(plan_file: Path) -> None:
    """The error of rank 0 names the address."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        told = refusal(start(0, port, "run", plan_file, "--timeout", 5).answer(), status=1)
    assert told.startswith("rank 0 of 2 could not join the others at 127.0.0.1:")
    assert "EADDRINUSE" in told


def test_a_launch_that_makes_no_sense_is_refused(plan_file: Path) -> None:
    """A wrong environment ends in status 2 on every rank."""
    told = refusal(process("run", plan_file, **variables(1, 1, RANK="two")))
    assert told.startswith("the environment variable RANK is 'two'; expected a whole number from 0 to 1")
