"""The mutation operators of ``benchmarks/mutants.py``."""

from __future__ import annotations

import ast
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = '''"""A module with 1 docstring: 0 < 1."""

from typing import TYPE_CHECKING

__all__ = ["first"]
Row = tuple[int, 0] | None
LIMIT = 0
if TYPE_CHECKING:
    Late = 1 + 1


def first(values: list[1], at: int = 1) -> "0 < 1":
    """Say 0 + 0."""
    assert at > 0
    for value, other in zip(values, values, strict=True):
        if value < at and not other:
            values.clear()
            continue
        if value:
            raise ValueError(f"µ {value + 1}", 1 + 1)
    text = f"{at + 1}"
    return max(value for value in values[at:] if at), -at, text
'''


@pytest.fixture
def operators(monkeypatch: pytest.MonkeyPatch) -> dict[tuple[int, str, str, str], str]:
    """All mutants of the source, by line, operator, and what is replaced by what."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    from mutation_operators import mutations

    data = SOURCE.encode()
    return {
        (found.line, found.operator, data[found.begin : found.end].decode(), found.text): found.apply(SOURCE)
        for found in mutations(SOURCE)
    }


def test_every_operator_changes_what_it_should(operators: dict[tuple[int, str, str, str], str]) -> None:
    """Docstrings, annotations, names of types, assertions, messages and TYPE_CHECKING blocks stay as they are."""
    assert sorted(operators) == sorted(
        [
            (7, "constant", "0", "1"),
            (12, "constant", "1", "0"),
            (12, "constant", "1", "2"),
            (16, "condition", "value < at and not other", "not (value < at and not other)"),
            (16, "comparison", " < ", " <= "),
            (16, "and/or", " and ", " or "),
            (16, "not", "not other", "(other)"),
            (17, "call", "values.clear()", "pass"),
            (18, "continue", "continue", "pass"),
            (19, "condition", "value", "not (value)"),
            (20, "raise", 'raise ValueError(f"µ {value + 1}", 1 + 1)', "pass"),
            (22, "function", "max", "min"),
            (22, "slice", "at", "(at) + 1"),
            (22, "condition", "at", "not (at)"),
            (22, "sign", "-at", "(at)"),
        ]
    )


@pytest.mark.parametrize(
    ("source", "mutants"),
    [
        ("a = x[:-1]", {"a = x[:(1)]", "a = x[:-0]", "a = x[:-2]"}),
        ("a = (x + y) * z", {"a = (x - y) * z", "a = (x + y) // z"}),
        ("a = x < y\\\n  not in z", {"a = x <= y\\\n  not in z", "a = x < y\\\n  in z"}),
        ("a = (x == y).any()", {"a = (x != y).any()", "a = (x == y).all()"}),
        ("a = x or y or z", {"a = x and y and z"}),
        ("a = ~(x | y)", {"a = (x | y)", "a = ~(x & y)"}),
        ("a += b", {"a -= b"}),
        ("a = isinstance(x, int | str)", set()),
    ],
)
def test_operators_keep_the_text_around_them(source: str, mutants: set[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Parentheses and lines stay, whatever the operator replaces."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    from mutation_operators import mutations

    source = f"def f():\n    {source}\n"
    found = {mutation.apply(source) for mutation in mutations(source)}
    assert {ast.dump(ast.parse(text)) for text in found} == {
        ast.dump(ast.parse(f"def f():\n    {mutant}\n")) for mutant in mutants
    }
    assert len(found) == len(mutants)


def test_every_group_names_modules_and_tests_that_exist() -> None:
    """A move that forgets ``[tool.collopt-mutants]`` would be noticed only by whoever next runs the program."""
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["collopt-mutants"]
    patterns = [pattern for group in groups.values() for kind in ("modules", "tests") for pattern in group[kind]]
    assert patterns
    assert [pattern for pattern in patterns if not any(ROOT.glob(pattern))] == []
