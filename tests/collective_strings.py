"""Finds code that tells collectives apart by their names, instead of asking the `Collective`.

No string may spell a collective, in whatever way it is spelled or put together: who compares a name, or looks something
up by it, needs one.  "broadcast" and "reduce" are directions of schedules and kinds of steps too, so these two are fine
by themselves, but what they are compared with, and what is looked up in a table of them, has to be called a direction,
phase or kind.  Nor may the name of a `Collective` be compared with anything, or those of one's constants be used.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet

__all__ = ["collective_strings"]

NAMES = frozenset({"allgather", "reducescatter", "allreduce", "alltoall", "alltoallv"})
DIRECTIONS = frozenset({"broadcast", "reduce"})
MENTIONED = re.compile(r"(?i)gather|scatter|reduce|all")
MEANT = re.compile(r"(?i).*(direction|phase|kind)s?")
BY_DIRECTION = re.compile(r"(?i).*(direction|phase|kind|tree|share)s?")
A_COLLECTIVE = re.compile(r"(?i:.*collective)|ALLGATHER|REDUCE_SCATTER|ALLREDUCE|BROADCAST|REDUCE|ALL_TO_ALLV?")
COMPARING = re.compile(
    r"__\w+__|eq|ne|is_|is_not|(full)?match|search|compile|startswith|endswith|remove\w+|r?find|r?index|count"
    r"|r?partition|contains|casefold|fnmatch\w*|compare\w*|is\w+|intersection|difference|union|symmetric_difference"
)
PLAIN = (
    ast.Name,
    ast.expr_context,
    ast.arg,
    ast.alias,
    ast.keyword,
    ast.operator,
    ast.cmpop,
)  # say nothing by themselves
TABLES = frozenset({"dict", "update", "defaultdict", "OrderedDict", "Counter", "SimpleNamespace"})


def collective_strings(source: str, nodes: Iterable[ast.AST] | None = None) -> list[str]:
    """List the lines that spell a collective or compare one's name; `nodes` are those of the source, once parsed.

    >>> collective_strings("if plan.collective == 'allreduce':\\n    pass")
    ["1: if plan.collective == 'allreduce':"]
    """
    nodes = [node for node in nodes or ast.walk(ast.parse(source)) if not isinstance(node, PLAIN)]
    fine = {inner for node in nodes for inner in _not_compared(node)}
    tables = {target.id for node in nodes for target in _tables(node)}
    code = [node for node in nodes if node not in fine]
    numbers = {number for node in code for number in _spelled(node)}
    numbers |= {node.lineno for node in code if _is_told_apart(node, tables) or _is_looked_up(node, tables)}
    lines = source.splitlines()
    return [f"{number}: {lines[number - 1].strip()}" for number in sorted(numbers)]


def _not_compared(node: ast.AST) -> Iterator[ast.AST]:
    """Nodes of ``__all__``, of default values of parameters that are collectives, and docstrings."""
    match node:
        case ast.Assign(targets=[ast.Name(id="__all__")]) | ast.AugAssign(target=ast.Name(id="__all__")):
            yield from ast.walk(node.value)
        case ast.arguments():
            positional = [*node.posonlyargs, *node.args]
            pairs = [*zip(reversed(positional), reversed(node.defaults), strict=False)]
            pairs += [(name, value) for name, value in zip(node.kwonlyargs, node.kw_defaults, strict=True) if value]
            yield from (value for name, value in pairs if name.arg == "collective")
        case ast.Expr(value=ast.Constant()):
            yield node.value


def _spelled(node: ast.AST) -> Iterator[int]:
    """Line of a string, or of a keyword of a table, that spells a collective with a name of its own."""
    match node:
        case ast.Constant() | ast.JoinedStr() | ast.BinOp(op=ast.Add()):
            text = _text(node)
            if text and MENTIONED.search(text):
                words = {_plain(word) for word in re.split(r"[\s,|/]+", text.strip())}
                if _plain(text) in NAMES or (words & NAMES and words <= NAMES | DIRECTIONS):
                    yield node.lineno
        case ast.Call() if _last(node.func) in TABLES:
            yield from (entry.lineno for entry in node.keywords if _plain(entry.arg or "") in NAMES)


def _is_told_apart(node: ast.AST, tables: set[str]) -> bool:
    """Whether it compares what may be a collective's name."""
    match node:
        case ast.Compare():
            holds = isinstance(node.ops[0], ast.In | ast.NotIn)
            operands = [node.left, *node.comparators]
            listed = {each for each in operands if _is_table(each) or _last(each) in tables}
            pieces = holds or any(
                isinstance(each, ast.Subscript) and isinstance(each.slice, ast.Slice) for each in operands
            )
            return (pieces and any(map(_is_part, operands))) or _is_compared(operands, listed, holds=holds)
        case ast.BinOp(op=ast.BitAnd() | ast.BitOr() | ast.BitXor() | ast.Sub()):
            return _is_compared([node.left, node.right])
        case ast.Match():
            patterns = [inner for case in node.cases for inner in ast.walk(case.pattern)]
            values = [inner.value for inner in patterns if isinstance(inner, ast.MatchValue)]
            return _is_compared([node.subject, *values])
        case ast.Call() if COMPARING.fullmatch(_last(node.func)):
            receiver = [node.func.value] if isinstance(node.func, ast.Attribute) else []
            parts = any(map(_is_part, node.args)) and not MEANT.fullmatch(_last(*receiver))
            return parts or _is_compared([*receiver, *node.args])
        case ast.Attribute(attr="name" | "nccl_name", value=owner):
            return _last(owner).isupper() and A_COLLECTIVE.fullmatch(_last(owner)) is not None
    return False


def _is_looked_up(node: ast.AST, tables: set[str]) -> bool:
    """Whether it looks up what may be a collective's name in a table of directions, or a direction in one of names."""
    match node:
        case ast.Subscript(value=table, slice=key) | ast.Call(func=ast.Attribute(value=table), args=[key, *_]):
            if _words(key):
                return re.fullmatch(r"(?i).*collectives?", _last(table)) is not None
            return (_is_table(table) or _last(table) in tables) and not MEANT.fullmatch(_last(key))
    return False


def _is_compared(operands: list[ast.expr], listed: AbstractSet[ast.expr] = frozenset(), *, holds: bool = False) -> bool:
    """Whether one is a collective's name, or "broadcast" or "reduce" and another not a direction, phase or kind."""
    if any(map(_is_name, operands)):
        return True
    others = [each for each in operands if not _words(each) and each not in listed]
    meant = BY_DIRECTION if holds and _words(operands[0]) else MEANT
    return len(others) < len(operands) and not all(_is_meant(each, meant) for each in others)


def _is_meant(node: ast.expr, meaning: re.Pattern[str]) -> bool:
    """Whether it is a constant, or is called what the pattern says; of a tuple, whether all its elements are."""
    if isinstance(node, ast.Tuple):
        return all(_is_meant(element, meaning) for element in node.elts)
    return _text(node) is not None or meaning.fullmatch(_last(node)) is not None


def _is_name(node: ast.expr) -> bool:
    """Whether it is the name of a collective, or is made of it."""
    match node:
        case ast.Attribute(attr="nccl_name"):
            return True
        case ast.Attribute(attr="name", value=owner) | ast.FormattedValue(value=owner):
            return bool(A_COLLECTIVE.fullmatch(_last(owner))) or (
                isinstance(node, ast.FormattedValue) and _is_name(owner)
            )
        case ast.Call(func=ast.Name(id="str" | "repr" | "format" | "getattr"), args=[owner, *_]):
            return bool(A_COLLECTIVE.fullmatch(_last(owner)))
        case ast.JoinedStr(values=values) | ast.Set(elts=values) | ast.Tuple(elts=values) | ast.List(elts=values):
            return any(map(_is_name, values))
        case ast.Call(func=ast.Attribute(value=inner)) | ast.Subscript(value=inner):
            return _is_name(inner)
    return False


def _words(node: ast.expr) -> set[str]:
    """What a string, or a tuple, list or set of strings, spells of "broadcast" and "reduce"."""
    if isinstance(node, ast.Tuple | ast.List | ast.Set):
        return {word for element in node.elts for word in _words(element)}
    return {_plain(_text(node) or "")} & DIRECTIONS


def _is_part(node: ast.expr) -> bool:
    """Whether it is a piece of a collective's name, which can tell it from others, but no direction."""
    word = re.sub(r"[^a-z]", "", (_text(node) or "").casefold())
    return len(word) > 2 and word not in DIRECTIONS and any(word in name for name in NAMES | DIRECTIONS)


def _text(node: ast.AST) -> str | None:
    """The string that an expression of constants is."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.Constant(value=bytes(text)):
            return text.decode(errors="replace")
        case ast.FormattedValue(value=inner):
            return _text(inner)
        case ast.JoinedStr() | ast.BinOp(op=ast.Add()):
            parts = node.values if isinstance(node, ast.JoinedStr) else [node.left, node.right]
            texts = [_text(part) for part in parts]
            return None if None in texts else "".join(map(str, texts))
    return None


def _plain(text: str) -> str:
    """A name without its capitals, underscores, hyphens and blanks."""
    return re.sub(r"[\s_-]", "", text.casefold())


def _last(node: ast.AST | None = None) -> str:
    """What an expression is called: the last of its names, or the key that it is looked up by."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case ast.Subscript(slice=ast.Constant(value=str(name))):
            return name
        case ast.Call(func=ast.Attribute(attr="get"), args=[ast.Constant(value=str(name)), *_]):
            return name
        case ast.Subscript(value=inner) | ast.Call(func=inner):
            return _last(inner)
    return ""


def _is_table(node: ast.AST | None) -> bool:
    """Whether it is a dict with "broadcast" or "reduce" among its keys."""
    match node:
        case ast.Dict(keys=keys):
            return any(key is not None and _words(key) for key in keys)
        case ast.Call(keywords=entries) if _last(node.func) in TABLES:
            return any(_plain(entry.arg or "") in DIRECTIONS for entry in entries)
    return False


def _listed(node: ast.expr | None) -> bool:
    """Whether it is a tuple, list or set of "broadcast" and "reduce"."""
    if isinstance(node, ast.Call) and _last(node.func) in ("frozenset", "list", "set", "tuple"):
        return any(map(_listed, node.args))
    return isinstance(node, ast.Tuple | ast.List | ast.Set) and bool(_words(node))


def _tables(node: ast.AST) -> Iterator[ast.Name]:
    """The names that a table or list of directions, or what is in it, is assigned to."""
    match node:
        case ast.Assign(targets=targets, value=value):
            pass
        case ast.AnnAssign(target=target, value=value) | ast.NamedExpr(target=target, value=value):
            targets = [target]
        case ast.For(target=target, iter=value) | ast.comprehension(target=target, iter=value):
            targets = [] if MEANT.fullmatch(_last(target)) else [target]
        case _:
            return
    if _is_table(value) or _listed(value):
        yield from (target for target in targets if isinstance(target, ast.Name))
