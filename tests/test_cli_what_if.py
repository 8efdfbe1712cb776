"""`collopt survive`, `sensitivity` and `groups`."""

import json
from fractions import Fraction
from pathlib import Path

import collopt
from cli_calls import Cli
from collopt import bound
from collopt.planners import PlanFolder
from collopt.topologies import dgx_a100

A100 = ("dgx-a100", "--boxes", 2)


def test_people_see_what_each_failure_costs(cli: Cli, tmp_path: Path) -> None:
    """Each collective has a table, and a second run finds the folder of plans complete."""
    words = ("survive", *A100, "allgather,allreduce", "--failures", "nic,switch", "--jobs", 1, "-o", tmp_path / "plans")
    answer = cli(*words)
    assert answer.status == 0
    lines = answer.out.splitlines()
    assert lines[0] == "allgather on dgx-a100-2boxes, 16 ranks"
    assert lines[2].split() == ["intact", "1", "16", "346.67", "optimal", "0", "%", "0", "%"]
    assert lines[3].split()[:7] == ["box0/nic0", "16", "16", "320.00", "optimal", "7.69", "%"]
    assert lines[5].split() == ["ib", "1", "16", "disconnected"]
    assert answer.err.endswith("has plans for 6 cases\n")
    assert cli(*words).out == answer.out
    assert PlanFolder(tmp_path / "plans").pick("box1/nic1", "allreduce").gap == 0
    fewer = cli("survive", *A100, "allgather", "--failures", "none", "-o", tmp_path / "plans")
    assert fewer.err.endswith("has plans for 6 cases\n")


def test_programs_get_exact_figures(cli: Cli) -> None:
    """JSON has pairs by kind and by name, and derated links, with exact gaps."""
    options = ("--failures", "none", "--pairs", "nic+nic", "--pairs", "box0/nic0 + box1/gpu1", "--derate", "1/2")
    rows = cli("survive", *A100, "allgather", *options, "--jobs", 1, "--json").data
    kinds = [row["kind"] for row in rows]
    assert kinds == ["intact", *["link x 1/2"] * 3, *["nic + nic"] * 2, "chosen"]
    assert rows[-1]["failure"] == "box1/gpu1 + box0/nic0"
    assert all(row["status"] == "ok" and row["gap_exact"] == "0" for row in rows)


def test_classes_of_links_are_widened_together(cli: Cli) -> None:
    """The gain is that of the bounds with all links of the class, or of two in a row, 10 % wider."""
    data = cli("sensitivity", "dgx-a100", "--boxes", 2, "allgather", "--json").data
    intact = dgx_a100(boxes=2)
    for row in data["links"]:
        kinds = [set(name.split("-")) for name in row["group"].split(" + ")]
        widened = intact.with_bandwidths(
            {
                (link.tail, link.head): link.bandwidth * Fraction(11, 10)
                for link in intact.links
                if {end.split("/")[-1].rstrip("0123456789") for end in (link.tail, link.head)} in kinds
            }
        )
        gain = bound(widened, "allgather").algbw - bound(intact, "allgather").algbw
        assert Fraction(row["gain"]) == 10 * gain <= Fraction(row["worth"])
    alone = [row for row in data["links"] if "+" not in row["group"]]
    assert [row["links"] for row in data["links"]] == [32, 64, 32, 32]
    assert sum(Fraction(row["worth"]) for row in alone) == bound(intact, "allgather").algbw
    assert len(alone) == 3


def test_links_in_a_row_gain_together_what_neither_does(cli: Cli) -> None:
    """Two classes in a row gain together where neither gains alone."""
    data = cli("sensitivity", "dgx-h100", "--boxes", 4, "allreduce", "--json").data
    best, *others = data["links"]
    assert best == {"group": "gpu-nic + nic-ib", "links": 128, "bandwidth": "50", "gain": "800/3", "worth": "800/3"}
    assert {row["group"]: row["gain"] for row in others} == {"gpu-nic": "0", "nic-ib": "0", "gpu-nvswitch": "0"}


NETWORK = ["ring", "--nodes", "4", "--set", "bandwidth=10"]


def test_groups_of_a_file(cli: Cli, tmp_path: Path) -> None:
    """Table and JSON have equal figures, and each group has a verified plan file."""
    path, folder = tmp_path / "groups.json", tmp_path / "plans"
    rows = [{"name": name, "ranks": ranks, "collective": "allgather"} for name, ranks in (("x", [0, 1]), ("y", [1, 2]))]
    path.write_text(json.dumps({"format": "collopt-groups", "version": 1, "groups": rows}))
    answer = cli("groups", *NETWORK, path, "-o", folder, "--json")
    assert answer.status == 0, answer.err
    assert answer.err == f"wrote 2 plans to {folder}\n"
    shown = json.loads(answer.out)
    assert [row["algbw"] for row in shown["groups"]] == [20, 20]
    assert shown["gap"] == 0
    for name in "xy":
        plan = collopt.load_plan(folder / f"{name}.json")
        plan.verify()
        assert plan.algbw == 20
    table = cli("groups", *NETWORK, "--relay", path).out
    assert "2 groups on ring-4, 4 ranks, verified together" in table
    assert [line.split()[0] for line in table.splitlines()[1:]] == ["group", "x", "y"]
    assert cli("groups", *NETWORK, path, "--csv").out.startswith("group,collective,ranks,size,algbw,limit,gap,")


def test_groups_of_a_mesh(cli: Cli) -> None:
    """Groups have the axes and sizes of the options."""
    words = ["groups", *NETWORK, "--mesh", "2x2", "--axis", "1:allgather:1K", "--axis", "0+1:all_to_all", "--json"]
    shown = json.loads(cli(*words).out)["groups"]
    assert [(row["group"], row["ranks"], row["size"]) for row in shown] == [
        ("axis1_0", 2, 1024),
        ("axis1_1", 2, 1024),
        ("axis0-1_0", 4, 1),
    ]
