"""Mutation testing of the modules that verify and interpret: ``python benchmarks/mutants.py --seed 1``.

A mutant is one small change of one module, such as ``<`` to ``<=``, in a copy of the tree; the tests of its group have
to fail on it.  ``[tool.collopt-mutants]`` in pyproject.toml lists the groups, `mutation_operators` the changes.
"""

from __future__ import annotations

import argparse
import difflib
import json
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from queue import SimpleQueue

from mutation_operators import Mutation, mutations
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

ROOT = Path(__file__).parents[1]
NOT_COPIED = (".git", ".venv", ".*_cache", ".hypothesis", "*.egg-info", "build", "dist", "out", "site")
LONGEST = 3600
"""Seconds of processor time for the tests of a group without a mutant."""
OUTCOMES = ("killed", "survived", "timed out")
PLAIN_WIDTH = 140
MEMORY = 2**34
"""Bytes of address space of a test run; a mutant may ask for any amount."""
WALL = 10
"""Seconds of the clock for each second of processor time that a run may take: others may use the machine."""
RUN_PYTEST = f"""
import resource, sys, pytest
seconds = int(sys.argv[1])
resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
resource.setrlimit(resource.RLIMIT_AS, ({MEMORY}, {MEMORY}))
sys.exit(pytest.main(["-x", "-q", "-p", "no:cacheprovider", "-m", "not slow and not gpu", *sys.argv[2:]]))
"""


@dataclass(frozen=True)
class Group:
    """Modules, and the test files that have to kill their mutants, the most specific first."""

    name: str
    modules: tuple[str, ...]
    tests: tuple[str, ...]


@dataclass(frozen=True)
class Mutant:
    """A mutation of a module."""

    group: Group
    module: str
    mutation: Mutation


@dataclass(frozen=True)
class Result:
    """What the tests made of a mutant; `change` is the changed lines, `killed_by` the test that failed."""

    group: str
    module: str
    line: int
    operator: str
    change: str
    outcome: str
    killed_by: str
    seconds: float


def read_groups(names: Sequence[str]) -> list[Group]:
    """Read the groups of these names, or all, from pyproject.toml."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["collopt-mutants"]
    if unknown := set(names) - set(settings):
        sys.exit(f"there is no group {min(unknown)!r}; expected some of {', '.join(settings)}")
    return [
        Group(name, _files(settings[name]["modules"]), _files(settings[name]["tests"])) for name in names or settings
    ]


def _files(patterns: Iterable[str]) -> tuple[str, ...]:
    """Expand patterns in their order; one that matches nothing is an error, as after a move."""
    files: dict[str, None] = {}
    for pattern in patterns:
        if not (found := sorted(path.relative_to(ROOT).as_posix() for path in ROOT.glob(pattern))):
            sys.exit(f"[tool.collopt-mutants] names {pattern}, which matches no file")
        files |= dict.fromkeys(found)
    return tuple(files)


def draw(mutants: Sequence[Mutant], count: int, seed: int) -> list[Mutant]:
    """Draw about `count` mutants, from every module in proportion to its mutants, and at least one."""
    by_module: dict[str, list[Mutant]] = {}
    for mutant in mutants:
        by_module.setdefault(mutant.module, []).append(mutant)
    drawn: list[Mutant] = []
    for module, own in by_module.items():
        share = min(len(own), max(1, round(count * len(own) / len(mutants))))
        drawn += random.Random(f"{seed} {module}").sample(own, share)
    return drawn


class TreeCopy:
    """A copy of the tree, in which one mutant at a time is tested."""

    def __init__(self, folder: Path, original: Path) -> None:
        self.root = folder / "collopt"
        # The files keep their times, so bytecode and kernels that were compiled beside the originals stay valid.
        shutil.copytree(original, self.root, ignore=shutil.ignore_patterns(*NOT_COPIED))

    def test(self, mutant: Mutant, limit: int) -> Result:
        """Test a mutant, then undo it."""
        path = self.root / mutant.module
        original, cache, kept = self.root.parent / "original", path.parent / "__pycache__", self.root.parent / "cache"
        shutil.copy2(path, original)
        source = path.read_text(encoding="utf-8")
        changed = mutant.mutation.apply(source)
        settings = {"PYTHONDONTWRITEBYTECODE": "1"}
        if compiles := "@kernel" in source:
            # Cached kernels beside this one may have code of it in them; those of other folders call none of them.
            cache.rename(kept)
            settings["NUMBA_BOUNDSCHECK"] = "1"
        path.write_text(changed, encoding="utf-8")
        start = time.perf_counter()
        try:
            outcome, killed_by = self.run(mutant.group.tests, limit, settings)
        finally:
            shutil.copy2(original, path)
            if compiles:
                shutil.rmtree(cache, ignore_errors=True)
                kept.rename(cache)
        seconds = round(time.perf_counter() - start, 1)
        change = changed_lines(source, changed)
        mutation = mutant.mutation
        return Result(
            mutant.group.name, mutant.module, mutation.line, mutation.operator, change, outcome, killed_by, seconds
        )

    def run(self, tests: Sequence[str], limit: int, settings: dict[str, str]) -> tuple[str, str]:
        """Run tests until one fails or `limit` seconds are used up; return the outcome and the test that failed."""
        # In CI hypothesis draws the same cases in every run, and keeps none from one mutant for the next.
        environment = os.environ | {"PYTHONPATH": str(self.root.parent), "CI": "1", "PYTHONHASHSEED": "0"} | settings
        process = subprocess.Popen(
            [sys.executable, "-P", "-c", RUN_PYTEST, str(limit), *tests],
            cwd=self.root,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        try:
            output, _ = process.communicate(timeout=WALL * limit)
        except subprocess.TimeoutExpired:
            return "timed out", ""
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        if process.returncode in (-signal.SIGXCPU, -signal.SIGKILL):
            return "timed out", ""
        if process.returncode in (4, 5):  # wrong arguments, no tests
            raise RuntimeError(output)
        failed = re.search(r"^(?:FAILED|ERROR) (.+?)(?: - |$)", output, re.MULTILINE)
        return "killed" if process.returncode else "survived", failed[1] if failed else ""


def changed_lines(source: str, changed: str) -> str:
    """Return the lines that differ, as a unified diff without headers."""
    lines = difflib.unified_diff(source.splitlines(), changed.splitlines(), n=0, lineterm="")
    return "\n".join(list(lines)[3:])


def time_limits(copy: TreeCopy, groups: Sequence[Group]) -> dict[str, int]:
    """Run every group's tests on the tree as it is, which compiles kernels and has to pass; allow twice the time."""
    limits: dict[str, int] = {}
    for group in groups:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        outcome, failed = copy.run(group.tests, LONGEST, {})
        if outcome != "survived":
            sys.exit(f"the tests of group {group.name} fail without a mutant: {failed}")
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        limits[group.name] = 20 + 2 * int(seconds)
    return limits


def run_mutants(mutants: Sequence[Mutant], groups: Sequence[Group], jobs: int) -> list[Result]:
    """Test mutants, `jobs` at a time, each in a copy of its own; return the results in the order of the mutants."""
    with (
        tempfile.TemporaryDirectory(prefix="mutants-") as folder,
        Progress(disable=not sys.stdout.isatty()) as progress,
        ThreadPoolExecutor(jobs) as pool,
    ):
        bar = progress.add_task("mutants", total=len(mutants))
        first = TreeCopy(Path(folder, "0"), ROOT)
        limits = time_limits(first, groups)
        free: SimpleQueue[TreeCopy] = SimpleQueue()
        free.put(first)
        for job in range(1, jobs):
            free.put(TreeCopy(Path(folder, str(job)), first.root))

        def test(mutant: Mutant) -> Result:
            copy = free.get()
            try:
                return copy.test(mutant, limits[mutant.group.name])
            finally:
                free.put(copy)
                progress.advance(bar)

        return list(pool.map(test, mutants))


def summary(candidates: Sequence[Mutant], results: Sequence[Result]) -> list[dict[str, object]]:
    """Count outcomes per module, per group and in all."""
    possible: Counter[tuple[str, str]] = Counter()
    found: Counter[tuple[str, str, str]] = Counter()
    for mutant in candidates:
        name = mutant.group.name
        possible.update([(name, mutant.module), (name, "all"), ("all", "all")])
    for result in results:
        for place in ((result.group, result.module), (result.group, "all"), ("all", "all")):
            found[*place, result.outcome] += 1
    rows: list[dict[str, object]] = []
    for group, module in sorted(possible, key=lambda place: (place[0] == "all", place[0], place[1] == "all", place[1])):
        counts = {outcome: found[group, module, outcome] for outcome in OUTCOMES}
        drawn = sum(counts.values())
        score = round(1 - counts["survived"] / drawn, 4) if drawn else None
        rows.append(
            {"group": group, "module": module, "possible": possible[group, module], "drawn": drawn, **counts}
            | {"score": score}
        )
    return rows


def print_report(rows: Sequence[dict[str, object]], results: Sequence[Result]) -> None:
    """Print the table of modules and the mutants that survived."""
    console = Console() if sys.stdout.isatty() else Console(width=PLAIN_WIDTH)
    table = Table(*rows[0], title="mutants")
    for row in rows:
        table.add_row(*("" if value is None else str(value) for value in row.values()))
    console.print(table)
    for result in results:
        if result.outcome == "survived":
            print(f"{result.module}:{result.line}: {result.operator}\n{result.change}")


def main() -> None:
    """Draw mutants, test them, and report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--group", action="append", default=[], help="a group of pyproject.toml; may be repeated")
    parser.add_argument("--count", type=int, default=150, help="about how many mutants to draw over all groups")
    parser.add_argument("--seed", type=int, default=0, help="random seed of the sample")
    parser.add_argument("--jobs", type=int, default=1, help="how many mutants to test at a time")
    parser.add_argument("--json", type=Path, help="file for the figures and every mutant")
    arguments = parser.parse_args()
    groups = read_groups(arguments.group)
    candidates = [
        Mutant(group, module, mutation)
        for group in groups
        for module in group.modules
        for mutation in mutations((ROOT / module).read_text(encoding="utf-8"))
    ]
    drawn = draw(candidates, arguments.count, arguments.seed)
    results = run_mutants(drawn, groups, arguments.jobs)
    rows = summary(candidates, results)
    print_report(rows, results)
    if arguments.json:
        report = {"seed": arguments.seed, "modules": rows, "mutants": [asdict(result) for result in results]}
        arguments.json.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
