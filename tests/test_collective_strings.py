"""The finder of collectives that are compared as strings, and that nothing in the package is found by it."""

import pytest

from collective_strings import collective_strings
from structure import modules


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
        'if forest.direction == "broadcast": pass',
        'adds = phase == "reduce"',
        'if step.kind in ("copy", "reduce"): pass',
        'ends = {"reduce": heads, "broadcast": tails}[forest.direction]',
        'both = "reduce" in trees',
        'if data.get("kind") == "allreduce": pass',
        'Name = Literal["allgather", "allreduce"]',
        '__all__ = ["allreduce", "all_to_all"]',
        'plan(topology, "allgather")',
        'row = {"collective": "allgather", "size": 1}',
        'figures = {"steps": 1, "all_to_all": rate}',
        "if collective is ALLREDUCE or collective.has_one_root: pass",
    ],
)
def test_leaves_other_meanings_of_the_words(line: str) -> None:
    """Directions, kinds of files and steps, types, arguments and fields of outputs."""
    assert collective_strings(line) == []


def test_no_module_tells_collectives_apart_by_name() -> None:
    """What collectives differ in is said by `Collective`, looked up once where a user's name comes in."""
    found = {name: collective_strings(path.read_text(encoding="utf-8")) for name, path in modules().items()}
    assert {name: lines for name, lines in found.items() if lines} == {}
