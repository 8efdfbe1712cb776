"""`collopt export`."""

from __future__ import annotations

from pathlib import Path

import pytest

import collopt
from cli_calls import Cli
from collopt.topologies import ring


@pytest.fixture(scope="module")
def plan_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An allreduce around four ranks."""
    path = tmp_path_factory.mktemp("plans") / "plan.json"
    collopt.plan(ring(4, bandwidth=25), "allreduce", planner="ring").save(path)
    return path


@pytest.mark.parametrize(
    ("form", "settings", "options"),
    [
        ("msccl-xml", ["runtime=rccl", "max-bytes=1048576"], {"runtime": "rccl", "max_bytes": 2**20}),
        ("mscclpp-json", ["slice_bytes=none"], {"slice_bytes": None}),
        ("mscclpp-json", ["slice_bytes=64K", "min_bytes=1K"], {"slice_bytes": 2**16, "min_bytes": 2**10}),
        ("nccl-graph-xml", ["nics=3,2,1,0", "type_intra=PHB"], {"nics": [3, 2, 1, 0], "type_intra": "PHB"}),
        (
            "nccl-tuner-csv",
            ["channels=2", "protocol=ll", "max_bytes=1G"],
            {"channels": 2, "protocol": "ll", "max_bytes": 2**30},
        ),
    ],
)
def test_a_plan_file_leaves_in_every_format(
    cli: Cli,
    plan_file: Path,
    tmp_path: Path,
    form: str,
    settings: list[str],
    options: dict[str, object],
) -> None:
    """The command writes the bytes that the library writes with the same options."""
    words = [word for setting in settings for word in ("--set", setting)]
    answer = cli("export", plan_file, "--format", form, "-o", tmp_path / "out", *words)
    assert (answer.status, answer.out, answer.err) == (0, "", f"wrote {tmp_path / 'out'}\n")
    collopt.load_plan(plan_file).export(form, tmp_path / "expected", **options)
    assert (tmp_path / "out").read_bytes() == (tmp_path / "expected").read_bytes()


def test_a_trace_has_a_file_of_each_rank(cli: Cli, plan_file: Path, tmp_path: Path) -> None:
    """The output is the common prefix of the files."""
    answer = cli("export", plan_file, "--format", "chakra-et", "-o", tmp_path / "t", "--set", "size=1M")
    assert (answer.status, answer.err) == (0, f"wrote {tmp_path / 't'}.*\n")
    assert {path.name for path in tmp_path.iterdir()} >= {f"t.{rank}.et" for rank in range(4)}
