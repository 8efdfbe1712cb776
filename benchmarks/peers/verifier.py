"""MSCCL-XML-Verifier: whether it accepts the allgathers that we write, and refuses one that lacks a send."""

from __future__ import annotations

import re
import subprocess
import tempfile
from pathlib import Path

import collopt
from collopt.errors import ColloptError

PROGRAM = "allgather-verifier"
RUNS, TIME_LIMIT = 3, 60
ACCEPTED = "All tests passed"


def verdicts(build: Path, topology: collopt.Topology, planners: tuple[str, ...]) -> dict[str, str]:
    """Verdict for the file of each planner, and for one of them with other data in one send."""
    program, found = build / PROGRAM, {}
    with tempfile.TemporaryDirectory() as folder:
        for planner in planners:
            path = Path(folder) / f"{planner}.xml"
            try:
                plan = collopt.plan(topology, "allgather", planner=planner)
                plan.to_msccl_xml(path, placement="out-of-place")
            except ColloptError as error:
                found[planner] = f"no file: {error}"
                continue
            found[planner] = _verdict(program, path)
            damaged = Path(folder) / "damaged.xml"
            damaged.write_text(re.sub(r'(type="s"[^>]*srcoff=")\d+', r"\g<1>1", path.read_text(), count=1))
            if damaged.read_text() != path.read_text():
                found.setdefault(f"{planner}, damaged", _verdict(program, damaged))
    return found


def _verdict(program: Path, path: Path) -> str:
    try:
        run = subprocess.run(
            [program, path, str(RUNS)], capture_output=True, text=True, timeout=TIME_LIMIT, check=False
        )
    except subprocess.TimeoutExpired:
        return f"not finished in {TIME_LIMIT} s"
    if run.returncode == 0 and ACCEPTED in run.stdout:
        return "accepted"
    said = (run.stderr or run.stdout).strip().splitlines() or ["no message"]
    return f"refused: {said[-1].strip()}"
