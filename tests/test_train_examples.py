"""The examples that train with the torch backend and with JAX."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from forked_programs import ForkedProgram, forked
from test_cli_run_launched import free_port, variables

EXAMPLE = str(Path(__file__).parents[1] / "examples" / "train.py")
PLANNED = {
    "ddp": "by plans: 1 x allgather, 4 x broadcast, 16 x allreduce",
    "fsdp": "by plans: 32 x allgather, 16 x reduce_scatter, 8 x allreduce",
}


def run(*command: str, folder: Path) -> list[str]:
    """Run Python on something, and return the lines that it prints."""
    answer = forked(*command, folder=folder)
    assert answer.status == 0, answer.err
    return answer.out.splitlines()


@pytest.mark.slow
@pytest.mark.parametrize("way", PLANNED)
def test_losses_are_those_of_the_plain_backend(way: str, tmp_path: Path) -> None:
    """To what float32 can tell; they fall, and every collective of the training ran by a plan."""
    _, *rows, planned = run(EXAMPLE, way, folder=tmp_path)
    losses = [[float(loss) for loss in row.split()[1:]] for row in rows]
    assert len(losses) == 8
    for plain, by_plans in losses:
        assert by_plans == pytest.approx(plain, rel=1e-5)
    assert losses[-1][1] < 0.5 * losses[0][1]
    assert planned == PLANNED[way]


@pytest.mark.slow
def test_experts_on_several_ranks_train_as_on_one(tmp_path: Path) -> None:
    """By torch's exchange and by dispatches, which send less between servers; bench replays what was sent."""
    _, *rows, sent, written = run(str(Path(EXAMPLE).with_name("train_moe.py")), "--traffic", "steps", folder=tmp_path)
    losses = [[float(loss) for loss in row.split()[1:]] for row in rows]
    assert len(losses) == 6
    for by_torch, by_collopt, alone in losses:
        assert by_torch == pytest.approx(alone, rel=1e-5)
        assert by_collopt == pytest.approx(alone, rel=1e-5)
    assert losses[-1][1] < 0.5 * losses[0][1]
    copies, once = map(int, re.findall(r"\d+", sent))
    assert once < 0.9 * copies
    assert written == "wrote 6 files to steps"
    network = ("complete", "--nodes", "4", "--set", "bandwidth=25")
    plan = ("plan", *network, "all_to_allv", "--traffic", "steps/step5.npy", "-o", "step.json")
    run("-m", "collopt", *plan, folder=tmp_path)
    table = run("-m", "collopt", "bench", "step.json", "-b", "64K", "-e", "64K", "-n", "1", "-w", "0", folder=tmp_path)
    assert any(line.endswith("step.json") for line in table)


@pytest.mark.slow
def test_rollouts_get_the_weights_that_broadcasts_give(tmp_path: Path) -> None:
    """The engines' weights are equal in every step, and the policy learns from what they do."""
    rewards, equal, plain, planned = run(str(Path(EXAMPLE).with_name("rollout.py")), folder=tmp_path)
    first, last = map(float, re.findall(r"\d+\.\d+", rewards))
    assert last > 2 * first
    assert equal == "weights are equal: yes"
    assert plain.startswith("gather and broadcast: ")
    assert planned.startswith("reshard: ")


@pytest.mark.slow
@pytest.mark.skipif(find_spec("jax") is None, reason="JAX is not installed")
def test_losses_in_jax_are_those_of_its_own_collective(tmp_path: Path) -> None:
    """To what float32 can tell; and they fall.  Not forked, as JAX starts threads."""
    example = Path(EXAMPLE).with_name("train_with_jax.py")
    done = subprocess.run(
        [sys.executable, example], cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    _, *rows = done.stdout.splitlines()
    losses = [[float(loss) for loss in row.split()[1:]] for row in rows]
    assert len(losses) == 8
    for own, by_plans in losses:
        assert by_plans == pytest.approx(own, rel=1e-5)
    assert losses[-1][1] < 0.5 * losses[0][1]


def test_an_unknown_way_to_train_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The message says which there are."""
    monkeypatch.setattr(sys, "argv", [EXAMPLE, "zero"])
    with pytest.raises(SystemExit) as caught:
        runpy.run_path(EXAMPLE, run_name="__main__")
    # Python prints a text that it is ended with, and exits with 1.
    assert caught.value.code == "there is no way 'zero' to train; expected one of ddp, fsdp"


@pytest.mark.slow
def test_a_launcher_runs_the_example_too() -> None:
    """Then the processes are the launcher's, and only the planned training is run."""
    port = free_port()
    started = [ForkedProgram(EXAMPLE, "ddp", environment=variables(rank, port, WORLD_SIZE="4")) for rank in range(4)]
    first, *others = [rank.answer() for rank in started]
    assert [(each.status, each.out) for each in others] == [(0, "")] * 3
    assert first.status == 0, first.err
    (told,) = first.out.splitlines()
    assert told.startswith("losses")
    assert len(re.findall(r"\d+\.\d{6}", told)) == 8
    assert "'allreduce': 16" in told
