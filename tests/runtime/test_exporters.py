"""`Plan.export(..., "msccl-xml")` ends here."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from runtime_forests import (
    COLLECTIVES,
    random_forest,
    random_schedule,
    ring_forest,
    weighted_forest,
)

import collopt
from collopt.errors import UnsupportedError
from collopt.planners import exporter
from collopt.runtime import interpret_file, read_xml
from collopt.schedules.collective import as_collective
from collopt.topologies import complete, rail
from slow_cases import slow_where


def plan(**changes: Any) -> SimpleNamespace:
    """What the exporter looks at."""
    name = "two boxes [8 of 16 ranks] with a name that is longer than what fits a header"
    given = {"collective": "allgather", "schedule": random_forest(4, 70, 0), **changes}
    given = {"topology": replace(complete(getattr(given["schedule"], "num_ranks", 4)), name=name), **given}
    looked_up = {"collective": as_collective(given["collective"]), "trees": given["schedule"]}
    return SimpleNamespace(**given | looked_up)


@pytest.mark.parametrize(("runtime", "channels"), [("msccl", 1), ("rccl", 3)])
def test_lowers_to_the_limits_of_the_runtime(tmp_path: Path, runtime: str, channels: int) -> None:
    """Steps as the runtime takes them; the name is made fit for a header."""
    from collopt.runtime.msccl.export import export_msccl_xml

    path = tmp_path / "ag.xml"
    export_msccl_xml(plan(), path, runtime=runtime, channels=channels)
    interpret_file(path)
    program = read_xml(path)
    assert program.num_channels >= channels
    assert program.name.startswith("allgather-two-boxes-8-of-16-ranks-with")
    assert len(program.name) <= 63


@pytest.mark.parametrize(("boxes", "refused"), [(1, False), (2, True)])
def test_broadcast_between_boxes_is_not_written_with_simple(tmp_path: Path, boxes: int, refused: bool) -> None:
    """It would hang; inside of a box it may be asked for."""
    made = collopt.plan(rail(boxes, 2), "broadcast", root=0)
    made.to_msccl_xml(tmp_path / "default.xml")
    assert ' proto="LL" ' in (tmp_path / "default.xml").read_text()
    with pytest.raises(UnsupportedError, match="a broadcast over a network hangs") if refused else nullcontext():
        made.to_msccl_xml(tmp_path / "simple.xml", protocol="Simple")
    assert (tmp_path / "simple.xml").exists() != refused


@pytest.mark.parametrize(
    ("collective", "runtime"),
    slow_where(
        product(COLLECTIVES, ("msccl", "msccl-executor-nccl", "rccl")),
        lambda case: case[0] in ("allgather", "allreduce") and case[1] != "msccl",
    ),
)
def test_writes_every_collective_for_every_runtime(tmp_path: Path, runtime: str, collective: str) -> None:
    """As many steps as fit a thread block once they are split; the root is part of the name."""
    from collopt.runtime.msccl.export import export_msccl_xml

    path = tmp_path / "file.xml"
    schedule = random_schedule(collective, 4, 50, 0, root=3)
    export_msccl_xml(plan(collective=collective, schedule=schedule), path, runtime=runtime)
    interpret_file(path, interleavings=2)
    root = "-root3" if collective in ("broadcast", "reduce") else ""
    assert read_xml(path).name.startswith(f"{collective}{root}-two-boxes")


def test_hands_options_on(tmp_path: Path) -> None:
    """Sizes and placement stand in the header."""
    from collopt.runtime.msccl.export import export_msccl_xml

    path = tmp_path / "file.xml"
    small = plan(collective="allreduce", schedule=random_schedule("allreduce", 3, 1, 0))
    export_msccl_xml(small, path, placement="in-place", min_bytes=3, max_bytes=5)
    assert 'inplace="1" outofplace="0" minBytes="3" maxBytes="5"' in path.read_text()


def test_refuses_more_channels_than_any_connection_can_use(tmp_path: Path) -> None:
    """Each hop of a ring of four carries three shards: three channels, and no file that has fewer than asked for."""
    from collopt.runtime.msccl.export import export_msccl_xml

    path, ring = tmp_path / "file.xml", plan(schedule=ring_forest(4))
    export_msccl_xml(ring, path, channels=3)
    assert read_xml(path).num_channels == 3
    path.unlink()
    with pytest.raises(UnsupportedError, match="channels is 4, but no connection of this plan has more than 3"):
        export_msccl_xml(ring, path, channels=4)
    assert not path.exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"collective": "allreduce"}, "trees are for broadcast; allreduce needs both"),
        ({"schedule": None}, "only those made of trees"),
        ({"schedule": weighted_forest([1, 2, 3], 1, 0)}, "all shards are of one size: plan without weights"),
    ],
)
def test_refuses_other_plans(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    """With the reason, and without a file."""
    from collopt.runtime.msccl.export import export_msccl_xml

    with pytest.raises(UnsupportedError, match=message):
        export_msccl_xml(plan(**changes), tmp_path / "ag.xml")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", [None, 3, "", "mscclpp-json"])
def test_the_name_of_a_format_is_a_new_string(name: Any) -> None:
    """Another would break the list of all formats, or replace one of them."""
    with pytest.raises(UnsupportedError, match=r"the name to register is .*; expected"):
        exporter(name)
