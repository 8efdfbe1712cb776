"""`Plan.export(..., "msccl-xml")` ends here."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from runtime_forests import random_forest

from collopt.errors import UnsupportedError
from collopt.runtime import interpret_file, read_xml


def plan(**changes: Any) -> SimpleNamespace:
    """What the exporter looks at."""
    topology = SimpleNamespace(name="two boxes [8 of 16 ranks] with a name that is longer than what fits a header")
    return SimpleNamespace(
        **{"collective": "allgather", "schedule": random_forest(4, 70, 0), "topology": topology, **changes}
    )


@pytest.mark.parametrize(("runtime", "channels"), [("msccl", 1), ("rccl", 3)])
def test_lowers_to_the_limits_of_the_runtime(tmp_path: Path, runtime: str, channels: int) -> None:
    """Steps as the runtime takes them; the name is made fit for a header."""
    from collopt.runtime.exporters import export_msccl_xml

    path = tmp_path / "ag.xml"
    export_msccl_xml(plan(), path, runtime=runtime, channels=channels)
    interpret_file(path)
    program = read_xml(path)
    assert program.num_channels >= channels
    assert program.name.startswith("allgather-two-boxes-8-of-16-ranks-with")
    assert len(program.name) <= 63


@pytest.mark.parametrize("changes", [{"collective": "allreduce"}, {"schedule": None}])
def test_refuses_other_plans(tmp_path: Path, changes: dict[str, Any]) -> None:
    """Only trees for allgather are lowered so far."""
    from collopt.runtime.exporters import export_msccl_xml

    with pytest.raises(UnsupportedError, match="only allgather plans made of trees"):
        export_msccl_xml(plan(**changes), tmp_path / "ag.xml")
    assert not list(tmp_path.iterdir())
