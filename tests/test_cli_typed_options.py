"""Options in messages, as they are typed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cli_calls import Cli, refusal
from collopt.cli.terminal.networks import EXAMPLES, FLAGS, as_typed
from collopt.topologies.importing.read import ImportOptions

MACHINE = """<system version="1">
  <cpu numaid="0" arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="143" affinity="ff">
    <pci busid="0000:01:00.0" class="0x030200" link_speed="" link_width="0">
      <gpu dev="0" sm="90" rank="0"/>
    </pci>
    <pci busid="0000:02:00.0" class="0x030200" link_speed="" link_width="0">
      <gpu dev="1" sm="90" rank="1"/>
    </pci>
  </cpu>
</system>
"""


@pytest.mark.parametrize(
    ("said", "typed"),
    [
        ("boxes is 0; expected more", "--boxes is 0; expected more"),
        ("option 'n' of ring is 'four'; expected more", "--nodes of ring is 'four'; expected more"),
        ("oversubscription is '0'; expected more", "--set oversubscription is '0'; expected more"),
        ("leave it out, or give boxes=2 or more", "leave it out, or give --boxes 2 or more"),
        ("give fabric, one of full, rail", "give --fabric, one of full, rail"),
        ("give nic_bandwidth in GB/s", "give --set nic_bandwidth=50 for 50 GB/s"),
        ("PCIe (pcie_bandwidth), or the GPU (gpu), whose", "PCIe (--set pcie_bandwidth=32), or the GPU (--set gpu=NAME), whose"),  # noqa: E501
        ("name a similar GPU (gpu=...)", "name a similar GPU (--set gpu=NAME)"),
        (
            "give nics and nic_bandwidth, such as nics=8 and nic_bandwidth=50",
            "give nics and nic_bandwidth, such as --set nics=8 and --set nic_bandwidth=50",
        ),
    ],
)  # fmt: skip
def test_options_are_named_as_they_are_typed(said: str, typed: str) -> None:
    """Python's names of options become flags in messages."""
    assert as_typed(said) == typed


@pytest.mark.parametrize(
    "said",
    [
        "the boxes are of different kinds; expected fabric 'full'",
        "there is no option 'bxes' for a file of a network; expected one of figures, gpu, nic_bandwidth",
        "<gpu> has attributes gpus=2 and rail-fabric=x",
    ],
)
def test_other_texts_are_left_alone(said: str) -> None:
    """Equal words with another meaning stay."""
    assert as_typed(said) == said


def test_every_option_of_a_file_is_known_here() -> None:
    """Every option of `ImportOptions` has a flag or an example."""
    assert EXAMPLES.keys() | (FLAGS.keys() - {"n", "shape"}) == set(ImportOptions.__annotations__) - {"name"}


def test_what_is_asked_for_can_be_typed(cli: Cli, tmp_path: Path) -> None:
    """Following the messages about a sparse file ends in a bound."""
    machine = tmp_path / "machine.xml"
    machine.write_text(MACHINE, encoding="utf-8")
    words: list[str] = ["--boxes", "2"]
    message = refusal(cli("bound", machine, "allgather", *words))
    for _ in range(5):
        found = re.findall(r"--set \w+=\w+", message)
        words += (
            ["--fabric", "rail"] if "give --fabric" in message else [word for each in found for word in each.split()]
        )
        answer = cli("bound", machine, "allgather", *words)
        if answer.status == 0:
            break
        message = answer.err
    assert answer.status == 0, answer.err
    assert "--fabric" in words
    assert "--set" in words
