"""`collopt calibrate`."""

from __future__ import annotations

import csv
import io
from dataclasses import replace
from pathlib import Path

import pytest

from cli_calls import Cli, netfile, refusal
from collopt.topologies import RuntimeCosts, read_topology

HEADER = "#  size  count  type  redop  root  time  algbw  busbw  #wrong  time  algbw  busbw  #wrong\n"


def times(path: Path, alpha: float, bandwidth: float, program: str = "sendrecv_perf", ranks: int = 2) -> Path:
    """Write what nccl-tests prints, with a time that varies a little."""
    lines = [f"# Collective test starting: {program}\n" if program else ""]
    lines += [f"#  Rank {rank:2} Group  0 Pid 1 on host device {rank} [0000:0f:00] GPU\n" for rank in range(ranks)]
    lines.append(HEADER)
    for power in range(8, 31):
        time = alpha + 2**power / bandwidth / 1e3
        lines.append(f"{2**power} 1 float none -1 {time * 0.99:.3f} 0 0 0 {time * 1.01:.3f} 0 0 N/A\n")
    path.write_text("".join(lines), encoding="utf-8")
    return path


def test_a_file_alone_gets_its_line(cli: Cli, tmp_path: Path) -> None:
    """A file without a network gets alpha and algbw, as text, CSV and JSON."""
    file = times(tmp_path / "times.txt", 4, 240)
    (row,) = cli("calibrate", file, "--json").data
    assert (row["file"], row["collective"], row["points"]) == (str(file), "sendrecv", 46)
    assert row["alpha_us"] == pytest.approx(4, rel=0.01)
    assert row["algbw"] == pytest.approx(240, rel=0.01)
    (same,) = csv.DictReader(io.StringIO(cli("calibrate", file, "--csv").out))
    assert list(same) == list(row)
    assert float(same["algbw"]) == row["algbw"]
    table = cli("calibrate", file, file).out.splitlines()
    assert table[0].split()[:4] == ["file", "collective", "alpha_us", "alpha_error"]
    assert len(table) == 3


def test_a_network_without_times_shows_its_classes(cli: Cli) -> None:
    """A network without times lists its link classes."""
    rows = cli("calibrate", "--topology", "dgx-a100", "--boxes", 2, "--json").data
    assert [(row["class"], row["links"], row["bandwidth"]) for row in rows] == [
        ("gpu-nvswitch", 32, 300.0),
        ("gpu-nic", 32, 25.0),
        ("nic-ib", 32, 25.0),
    ]


def test_a_network_is_calibrated_and_written(cli: Cli, tmp_path: Path) -> None:
    """Measured classes are fitted and written; the others keep their costs."""
    box, output = times(tmp_path / "box.txt", 4, 240), tmp_path / "calibrated.json"
    network = ("--topology", "dgx-a100", "--boxes", 2)
    answer = cli("calibrate", *network, "--class", f"gpu-nvswitch={box}", "-o", output)
    assert (answer.status, answer.err) == (0, f"wrote {output}\n")
    assert answer.out.startswith("dgx-a100-2boxes, calibrated; rounded by a tenth of their 95 % confidence")
    assert f"model for {box}: sendrecv of 2 ranks, one message over box0/gpu0 - box0/nvswitch - box0/gpu1" in answer.out
    assert " 240 of 300 GB/s" in answer.out
    assert answer.out.count("not measured") == 2
    written = read_topology(output)
    assert written.link("box0/gpu0", "box0/nvswitch").bandwidth == 300
    assert written.costs is not None
    assert replace(written.costs, ends=()) == RuntimeCosts("3.3", efficiency={"gpu-nvswitch": "0.8"}, calibrated=True)
    for command in ("plan", "compare"):
        planner = ("--planner", "few-steps") if command == "compare" else ()
        sized = (command, output, "allgather", "--size", "1K", *planner)
        assert " µs to " in cli(*sized).out
        rows = cli(*sized, "--json").data
        row = rows if command == "plan" else rows[-1]
        low, high = row["range_us" if command == "plan" else "range_us_1K"]
        assert low <= row["predicted_us" if command == "plan" else "us_1K"] <= high
    data = cli("calibrate", *network, "--class", f"gpu-nvswitch={box}", "--json").data
    assert [(row["cost"], row["class"], row["value"]) for row in data["costs"]] == [
        ("launch", None, 0.0),
        ("alpha", None, 3.3),
        ("efficiency", "gpu-nvswitch", 0.8),
        ("efficiency", "gpu-nic", 1.0),
        ("efficiency", "nic-ib", 1.0),
    ]
    assert [run["num_points"] for run in data["runs"]] == [46]
    assert data["notes"][0].startswith("launch and alpha cannot be told apart, as every measurement has 1 hop")
    net = times(tmp_path / "net.txt", 12, 22)
    answer = cli("calibrate", *network, "--class", f"gpu-nic,nic-ib={net}", "--csv")
    rows = csv.DictReader(io.StringIO(answer.out))
    together = [row["together"] for row in rows if row["cost"] == "efficiency"]
    assert together == ['["gpu-nvswitch"]', '["gpu-nic", "nic-ib"]', '["gpu-nic", "nic-ib"]']


def test_a_run_of_all_ranks_is_about_all_links(cli: Cli, tmp_path: Path) -> None:
    """A ring of 25 GB/s both ways carries an allgather of 4 ranks at 66.7 GB/s of algbw; it was half that."""
    file = times(tmp_path / "times.txt", 30, 200 / 6, "", 4)
    answer = cli("calibrate", file, "--topology", netfile(tmp_path), "--collective", "all_gather", "--json")
    (row,) = (row for row in answer.data["costs"] if row["cost"] == "efficiency")
    assert row["value"] == pytest.approx(0.5, rel=0.02)


def test_a_time_far_from_the_line_is_told(cli: Cli, tmp_path: Path) -> None:
    """A single outlier is reported although the median is small."""
    file = times(tmp_path / "times.txt", 4, 240)
    lines = file.read_text(encoding="utf-8").splitlines()
    lines[-9] = "1048576 1 float none -1 80.000 0 0 0 80.000 0 0 N/A"
    file.write_text("\n".join(lines), encoding="utf-8")
    answer = cli("calibrate", "--topology", "dgx-a100", "--class", f"gpu-nvswitch={file}")
    said = f"collopt: note: {file}: the model does not describe the 46 measured times well: median error "
    assert answer.err.startswith(said)
    assert ", worst 89." in answer.err


def test_what_sizes_do_not_tell_is_said(cli: Cli, tmp_path: Path) -> None:
    """A bandwidth that small sizes do not determine is named in tables and null in JSON."""
    file = tmp_path / "times.txt"
    rows = "".join(f"{2**power} 1 float none -1 4.00 0 0 0 4.00 0 0 N/A\n" for power in range(3, 8))
    file.write_text(HEADER + rows, encoding="utf-8")
    assert " not identifiable from these sizes " in cli("calibrate", file).out
    (row,) = cli("calibrate", file, "--json").data
    assert (row["algbw"], row["algbw_error"], row["alpha_us"]) == (None, None, pytest.approx(4))
    network = ("--topology", "dgx-a100", "--collective", "sendrecv", "--class", f"gpu-nvswitch={file}")
    assert "efficiency gpu-nvswitch  1       not identifiable from these sizes" in cli("calibrate", *network).out


def test_residuals_are_drawn(cli: Cli, tmp_path: Path) -> None:
    """Residuals of a model are drawn into a file of a known format."""
    file, figure = times(tmp_path / "box.txt", 4, 240), tmp_path / "residuals.svg"
    network = ("--topology", "dgx-a100", "--boxes", 2, "--class", f"gpu-nvswitch={file}")
    assert cli("calibrate", *network, "--figure", figure).err == f"wrote {figure}\n"
    assert "model above measured time in %" in figure.read_text(encoding="utf-8")
    assert "--figure x.gif does not end in .svg" in refusal(cli("calibrate", *network, "--figure", "x.gif"))
    assert "--figure applies to a network" in refusal(cli("calibrate", file, "--figure", figure))
