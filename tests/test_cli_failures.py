"""`--without`: what is left of a network after a failure, and what that costs."""

from __future__ import annotations

import subprocess
import sys

import pytest

from cli_calls import call


def test_a_failed_nic_is_planned_around_and_the_loss_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    """Exact figures of the smaller network, and the share of the whole one's bound that is lost."""
    answer = call(capsys, "plan", "dgx-a100", "--boxes", "2", "allgather", "--without", "box1/nic3", "--json")
    assert answer.status == 0
    assert answer.data["optimal"]
    assert answer.data["num_ranks"] == 16
    assert answer.data["intact_algbw"] == pytest.approx(346.67, abs=0.01)
    assert answer.data["loss"] == pytest.approx(1 - answer.data["algbw"] / answer.data["intact_algbw"])
    assert answer.data["loss"] > 0


def test_a_failed_gpu_leaves_one_rank_less(capsys: pytest.CaptureFixture[str]) -> None:
    """The end of a name is enough where it is clear."""
    answer = call(capsys, "bound", "dgx1-v100", "allgather", "--without", "gpu3", "--json")
    assert answer.data["num_ranks"] == 7
    assert not any(node.endswith("gpu3") for node in answer.data["cut"])


@pytest.mark.parametrize("link", ["gpu0--gpu1", "gpu1--gpu0"])
def test_a_failed_link_is_gone_in_both_directions(capsys: pytest.CaptureFixture[str], link: str) -> None:
    """A ring without a link is a chain, whose ends have half the bandwidth."""
    answer = call(capsys, "bound", "ring", "--nodes", "4", "allgather", "--without", link, "--json")
    assert answer.data["inverse_rate"] == "3"


def test_an_interrupt_while_the_program_is_imported_ends_it_quietly() -> None:
    """Whatever is imported then: here the interrupt comes from within."""
    code = (
        "import os, signal, sys\n"
        "class Interrupt:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'typer':\n"
        "            os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Interrupt())\n"
        "from collopt.cli import main\n"
        "sys.exit(main(['--version']))\n"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert (result.returncode, result.stdout, result.stderr) == (130, "", "")
