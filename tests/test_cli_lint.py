"""`collopt lint`."""

from __future__ import annotations

from pathlib import Path

import pytest

import collopt
from cli_calls import Cli, refusal
from collopt.topologies import ring


@pytest.fixture
def xml(tmp_path: Path) -> Path:
    """A reduce-scatter for the executor of Azure."""
    path = tmp_path / "rs.xml"
    collopt.plan(ring(4, bandwidth=25), "reduce_scatter").to_msccl_xml(path)
    return path


def test_says_that_a_file_is_fine_and_how_to_load_it(cli: Cli, xml: Path) -> None:
    """An accepted file ends in status 0 with the environment that loads it."""
    answer = cli("lint", xml, "--runtime", "msccl-executor-nccl")
    assert (answer.status, answer.err) == (0, "")
    first, *rows = answer.out.splitlines()
    assert first == f"{xml}: accepted by msccl-executor-nccl 2.23.4"
    assert "reducescatter on 4 ranks, out of place, from 0 to 1099511627776 bytes" in rows[0]
    assert f"  environment  MSCCL_ALGO_DIR={xml.parent}" in rows
    assert {row.split()[0] for row in rows} == {"for", "environment", "loading"}


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--runtime", "msccl"], "  rejected     line 1: coll is 'reducescatter'"),
        (["--runtime", "rccl"], "  rejected     line 4: type rrc is read, but"),
        (["--runtime", "msccl-executor-nccl", "--max-thread-blocks", 1], "  hangs        line 2: rank 0 has"),
    ],
)
def test_a_file_that_does_not_run_fails(cli: Cli, xml: Path, words: list[str], reason: str) -> None:
    """A rejected file ends in status 1 with the reasons on standard output."""
    answer = cli("lint", xml, *words)
    assert (answer.status, answer.err) == (1, "")
    assert reason in answer.out
    data = cli("lint", xml, *words, "--json")
    assert data.status == 1
    assert data.data["files"][0]["verdict"] == reason.split(maxsplit=1)[0]


def test_a_folder_is_a_family(cli: Cli, tmp_path: Path) -> None:
    """The file that is picked for each size is listed."""
    plan = collopt.plan(ring(4, bandwidth=25), "allgather")
    plan.to_msccl_xml(tmp_path / "00.xml", max_bytes=2**20 - 1)
    plan.to_msccl_xml(tmp_path / "01.xml", min_bytes=2**20)
    answer = cli("lint", tmp_path, "--runtime", "msccl-executor-nccl")
    assert (answer.status, answer.err) == (0, "")
    assert "2 files together" in answer.out
    assert f"from 0 to 1048575 bytes: {tmp_path / '00.xml'}" in answer.out
    data = cli("lint", tmp_path, "--runtime", "msccl-executor-nccl", "--json").data
    assert [Path(span["path"]).name for span in data["picked"]] == ["00.xml", "01.xml", ""]


def test_what_is_in_a_file_does_not_steer_the_terminal(cli: Cli, xml: Path) -> None:
    """Control characters of a file are escaped."""
    xml.write_bytes(xml.read_bytes().replace(b'coll="reducescatter"', b'coll="\x1b[2Jx"'))
    answer = cli("lint", xml, "--runtime", "msccl")
    assert answer.status == 1
    assert "\x1b" not in answer.out


def test_plans_of_mscclpp_need_no_name_of_a_runtime(cli: Cli, tmp_path: Path, xml: Path) -> None:
    """The runtime may be omitted for MSCCL++ plans alone."""
    path = tmp_path / "plan.json"
    collopt.plan(ring(4, bandwidth=25), "allgather").to_mscclpp_json(path)
    answer = cli("lint", path)
    assert (answer.status, answer.out) == (0, cli("lint", path, "--runtime", "mscclpp").out)
    assert "--runtime is missing" in refusal(cli("lint", path, xml))
    assert "--runtime is missing" in refusal(cli("lint", tmp_path))
