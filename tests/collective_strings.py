"""Finds code that tells collectives apart by their names, instead of asking the `Collective`.

"broadcast" and "reduce" are directions of schedules and kinds of steps too, so these two alone are fine where they meet
something that is called a direction, phase or kind.  A single key of a dict is a field of an output; two are a table.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

__all__ = ["collective_strings"]

NAMES = frozenset({"allgather", "reduce_scatter", "allreduce", "all_to_all", "all_to_allv"})
DIRECTIONS = frozenset({"broadcast", "reduce"})
OTHER_MEANINGS = re.compile(r"direction|phase|kind", re.IGNORECASE)


def collective_strings(source: str) -> list[str]:
    """List lines that compare names of collectives, look something up by them, or keep a table of them.

    >>> collective_strings("if plan.collective == 'allreduce':\\n    pass")
    ["1: plan.collective == 'allreduce'"]
    """
    if not any(name in source for name in NAMES | DIRECTIONS):
        return []  # most modules
    nodes = list(ast.walk(ast.parse(source)))
    compares = [node for node in nodes if isinstance(node, ast.Compare)]
    nested = {inner for node in compares for inner in ast.walk(node)} - {*compares}
    literal = {inner for node in nodes if _is_literal_type(node) for inner in ast.walk(node)}
    found = [node for node in nodes if node not in literal and _tells_apart(node, node in nested)]
    return [f"{node.lineno}: {ast.unparse(node)}" for node in sorted(found, key=lambda node: node.lineno)]


def _tells_apart(node: ast.AST, compared: bool) -> bool:
    match node:
        case ast.Compare():
            words = {word for operand in (node.left, *node.comparators) for word in _words(operand)}
            return _are_collectives(words, node)
        case ast.Dict():
            keys = {word for key in node.keys if key is not None for word in _words(key)}
            return len(keys) > 1 and bool(keys & NAMES)
        case ast.Tuple() | ast.List() | ast.Set() if not compared:
            words = {word for element in node.elts for word in _words(element)}
            return len(words) > 1 and len(words) == len(node.elts) and bool(words & NAMES)
        case ast.Subscript():
            return bool({*_words(node.slice)} & NAMES)
        case ast.Call(func=ast.Attribute(attr="get")) if node.args:
            return bool({*_words(node.args[0])} & NAMES)
        case ast.MatchValue():
            return bool({*_words(node.value)} & NAMES)
    return False


def _are_collectives(words: set[str], node: ast.Compare) -> bool:
    """Whether words that are compared are names of collectives, and not those of directions or kinds."""
    # Such as ``"reduce" in trees``, where `trees` has one entry for each direction.
    by_direction = isinstance(node.left, ast.Constant) and isinstance(node.ops[0], ast.In | ast.NotIn)
    text = ast.unparse(node)
    if by_direction and words <= DIRECTIONS and "collective" not in text:
        return False
    return bool(words) and not OTHER_MEANINGS.search(text)


def _words(node: ast.expr) -> Iterator[str]:
    """Names of collectives in a constant, or in a tuple, list or set of them."""
    match node:
        case ast.Constant(value=str(word)) if word in NAMES | DIRECTIONS:
            yield word
        case ast.Tuple(elts=elements) | ast.List(elts=elements) | ast.Set(elts=elements):
            for element in elements:
                yield from _words(element)


def _is_literal_type(node: ast.AST) -> bool:
    """Whether it is ``Literal[...]``, or the ``__all__`` of a module, which names functions."""
    if isinstance(node, ast.Assign):
        return any(isinstance(target, ast.Name) and target.id == "__all__" for target in node.targets)
    return isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and node.value.id == "Literal"
