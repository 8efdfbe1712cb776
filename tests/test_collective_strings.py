"""The finder of collectives that are compared as strings, and that nothing in the package is found by it."""

import pytest

from collective_strings import collective_strings
from structure import COLLOPT

HOME = "collopt.schedules.collective"
"""The module of `Collective`, which alone knows the names."""

ALLOWED = {
    # The kind of schedules in plan files, and the fields of this one.
    "schedules.schedule": [
        *('kind="allreduce"', '{"kind": "allreduce", "reduce": ', 'data, "allreduce",', '== "allreduce":'),
    ],
    # What messages and pictures call a direction, a rate, or a task; the article in front of a collective.
    "schedules.steps.flow": ["{'all-to-all' if equal else 'all-to-allv'} of"],
    "schedules.steps.step_schedule": ['"allgather" if self.direction == "broadcast" else "reduce-scatter"'],
    "planners.finder.candidate": ['"allgather" if direction == "broadcast" else "reduce-scatter"'],
    "schedules.steps.allreduce": ['reduce-scatter, {self.broadcast.num_steps} allgather"'],
    "runtime.interpreter.check": ["'an' if program.collective.name.startswith('a') else 'a'"],
    # Headers of columns, a field of the output, a stage, and a flag of `find_topologies`.
    "cli.commands.find": ['"all_to_all": float(', '["exact", "reduce-scatter"]', 'else ["all-to-all"]'],
    "planners.finder.find": ['trace.stage("all-to-all")', 'as_flag(all_to_all, "all_to_all")'],
    # The words of a state in addresses and commands.
    "report.explorer.scenario": ["collective: str = ALLGATHER.name"],
    # How MSCCL spells names.
    "runtime.msccl.limits": ["{REDUCE_SCATTER: REDUCE_SCATTER.name}", "other_collectives: tuple["],
}
"""Parts of the lines that may spell a collective or use its name, by module."""


@pytest.mark.parametrize(
    "line",
    [
        'if plan.collective == "allreduce": pass',
        'x = "broadcast" != collective',
        'single = collective in ("broadcast", "reduce")',
        'moves = collective not in {"allgather", *more}',
        'if "reduce" in collectives: pass',
        'ROOTED = ("broadcast", "reduce_scatter")',
        'SPELLED = {"reduce_scatter": "reducescatter", "all_to_all": "alltoall"}',
        'known = options["allreduce"]',
        'name = table.get("allgather", 1)',
        'match name:\n    case "all_to_allv": pass',
        'times = [1 for x in y if x == "reduce"]',
    ],
)
def test_finds_names_that_are_told_apart(line: str) -> None:
    """By comparison, membership, lookup, match, or a table to look them up in."""
    assert len(collective_strings(line)) == 1


@pytest.mark.parametrize(
    "line",
    [
        'A = "allgather"',
        'n == f"allgather"',
        "n == f\"all{'gather'}\"",
        'n == "all" + "gather"',
        'n == b"allgather"',
        'n == "AllGather"',
        'n == "ALL_REDUCE"',
        'n == "Reduce"',
        'c.nccl_name == "alltoall"',
        'Name = Literal["allgather", "allreduce"]',
        '"allgather allreduce".split()',
        'plan(topology, "allgather")',
    ],
)
def test_finds_names_however_they_are_spelled(line: str) -> None:
    """In capitals, without underscores, in parts, in other types, and as arguments."""
    assert len(collective_strings(line)) == 1


@pytest.mark.parametrize(
    "line",
    [
        '{"allgather": 1}[c]',
        'T = {"allgather": 1}',
        "dict(allgather=1, allreduce=2)",
        'frozenset(("allgather", "x"))',
        'S = {"allgather"}',
        '{"allgather"} & {n}',
        '{"broadcast"} & {n}',
        '{"broadcast", "reduce"}.intersection({n})',
        '{"broadcast": f, "reduce": g}[c.name]',
        "dict(broadcast=f, reduce=g)[c]",
        'T = {"broadcast": 1, "reduce": 2}\nT.get(n)',
        'D = frozenset({"broadcast"})\nn in D',
        'n in {"broadcast": 1}',
        'any(n == word for word in ("broadcast", "reduce"))',
        'class K:\n    T = {"reduce": 1}\n\n    def f(self, n): return self.T[n]',
        'COLLECTIVES["reduce"]',
    ],
)
def test_finds_names_in_containers(line: str) -> None:
    """Also those of directions, when they are looked up by something else."""
    assert len(collective_strings(line)) == 1


@pytest.mark.parametrize(
    "line",
    [
        'n.startswith("all_to_all")',
        'n.endswith("gather")',
        'n.removeprefix("all_")',
        '"gather" in n',
        'n[-6:] == "gather"',
        're.fullmatch("all_?gather", n)',
        're.match("all.*", n)',
        '"allgather".__eq__(n)',
        '"reduce".__eq__(n)',
        'operator.eq(n, "reduce")',
        '["broadcast", "reduce"].index(n)',
    ],
)
def test_finds_calls_that_compare(line: str) -> None:
    """With whole names and with parts of them."""
    assert len(collective_strings(line)) == 1


@pytest.mark.parametrize(
    "line",
    [
        "c == ALLGATHER.name",
        "c == str(ALLGATHER)",
        "T = {ALLGATHER.nccl_name: 1}",
        "collective.name.lower() == other",
        'f"{collective}" == other',
        'plan.kind.collective == "allgather"',
        'plan.kind.collective == "reduce"',
        'kind.name == "reduce"',
        'match c:\n    case "broadcast" | "reduce": pass',
        'match c:\n    case Collective(name="reduce"): pass',
    ],
)
def test_finds_names_of_collectives_and_what_is_no_direction(line: str) -> None:
    """What a name is compared with says nothing; what "reduce" is compared with has to be a direction itself."""
    assert len(collective_strings(line)) == 1


@pytest.mark.parametrize(
    "line",
    [
        'if forest.direction == "broadcast": pass',
        'adds = phase == "reduce"',
        'if step.kind in ("copy", "reduce"): pass',
        'ends = {"reduce": heads, "broadcast": tails}[forest.direction]',
        'both = "reduce" in trees',
        'match step.kind:\n    case "reduce": pass',
        'if (first.direction, phases[1]) != ("reduce", "broadcast"): pass',
        '__all__ = ["allreduce", "all_to_all"]',
        'def find(size, collective="allreduce", *, root=None): pass',
        "calls[collective.name] += 1",
        'raise ValueError(f"no allgather of {size}; use allreduce")',
        '"""allgather"""',
        "if collective is ALLREDUCE or collective.has_one_root: pass",
    ],
)
def test_leaves_other_meanings_of_the_words(line: str) -> None:
    """Directions, kinds of steps, default values, counts and messages."""
    assert collective_strings(line) == []


def test_no_module_tells_collectives_apart_by_name() -> None:
    """What collectives differ in is said by `Collective`, looked up once where a user's name comes in."""
    found = [
        (name.removeprefix("collopt."), line)
        for name, path in COLLOPT.modules.items()
        if name != HOME
        for line in collective_strings(path.read_text(encoding="utf-8"), COLLOPT.nodes[name])
    ]
    assert [(name, line) for name, line in found if not any(part in line for part in ALLOWED.get(name, ()))] == []
    # And whatever is allowed is there, once.
    assert len(found) == sum(map(len, ALLOWED.values()))
