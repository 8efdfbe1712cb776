"""The examples that train with the torch backend."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
PLANNED = {
    "train_ddp.py": "by plans: 1 x allgather, 4 x broadcast, 16 x allreduce",
    "train_fsdp.py": "by plans: 32 x allgather, 16 x reduce_scatter, 8 x allreduce",
}


def run(*command: str, folder: Path) -> list[str]:
    """Run Python on something, and return the lines that it prints."""
    done = subprocess.run(
        [sys.executable, *command], cwd=folder, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.slow
@pytest.mark.parametrize("example", PLANNED)
def test_losses_are_those_of_the_plain_backend(example: str, tmp_path: Path) -> None:
    """To what float32 can tell; they fall, and every collective of the training ran by a plan."""
    _, *rows, planned = run(str(EXAMPLES / example), folder=tmp_path)
    losses = [[float(loss) for loss in row.split()[1:]] for row in rows]
    assert len(losses) == 8
    for plain, by_plans in losses:
        assert by_plans == pytest.approx(plain, rel=1e-5)
    assert losses[-1][1] < 0.5 * losses[0][1]
    assert planned == PLANNED[example]


@pytest.mark.slow
def test_torchrun_runs_the_example_too(tmp_path: Path) -> None:
    """Then the processes are the launcher's, and only the planned training is run."""
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "4")
    lines = run(*launcher, str(EXAMPLES / "train_ddp.py"), folder=tmp_path)
    (told,) = [line for line in lines if line.startswith("losses")]
    assert len(re.findall(r"\d+\.\d{6}", told)) == 8
    assert "'allreduce': 16" in told
