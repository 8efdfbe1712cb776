"""Mutation operators: the small changes of a module that its tests have to notice.

Changes are made in the text at the place of a node of the syntax tree, so that everything else stays as it is written.
Left out is what no test should look at: annotations, ``__all__`` and other names of types, assertions (``assert`` and
``strict=``), ``TYPE_CHECKING`` blocks, and messages (the arguments of ``raise`` and all f-strings).
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

__all__ = ["Mutation", "mutations"]

COMPARISONS: dict[type[ast.cmpop], tuple[str, str]] = {
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"),
    ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"),
}
ORDERINGS = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)
ARITHMETIC: dict[type[ast.operator], tuple[str, str]] = {
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "//"),
    ast.Div: ("/", "*"),
    ast.FloorDiv: ("//", "*"),
    ast.Mod: ("%", "//"),
    ast.Pow: ("**", "*"),
    ast.BitAnd: ("&", "|"),
    ast.BitOr: ("|", "&"),
}
BOOLEAN: dict[type[ast.boolop], tuple[str, str]] = {ast.And: ("and", "or"), ast.Or: ("or", "and")}
FUNCTIONS = {"min": "max", "max": "min", "any": "all", "all": "any"}


@dataclass(frozen=True)
class Mutation:
    """A change of one place: bytes ``begin`` to ``end`` of the source, the first on ``line``, become ``text``."""

    operator: str
    line: int
    begin: int
    end: int
    text: str

    def apply(self, source: str) -> str:
        """Return the changed source."""
        data = source.encode()
        return (data[: self.begin] + self.text.encode() + data[self.end :]).decode()


def mutations(source: str) -> list[Mutation]:
    """Return all mutations of a module, in the order of its text; each parses, and as a different program."""
    tree = ast.parse(source)
    finder = _Finder(source)
    finder.visit(tree)
    original = ast.dump(tree)
    found = sorted(set(finder.found), key=lambda mutation: (mutation.begin, mutation.end, mutation.text))
    return [mutation for mutation in found if _parsed(mutation.apply(source)) not in ("", original)]


def _parsed(source: str) -> str:
    try:
        return ast.dump(ast.parse(source))
    except SyntaxError:
        return ""


class _Finder(ast.NodeVisitor):
    """Collects mutations of what it visits."""

    def __init__(self, source: str) -> None:
        self.found: list[Mutation] = []
        self._data = source.encode()
        self._line_starts = [0]
        for line in self._data.splitlines(keepends=True):
            self._line_starts.append(self._line_starts[-1] + len(line))

    def _span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return (
            self._line_starts[node.lineno - 1] + node.col_offset,
            self._line_starts[node.end_lineno - 1] + node.end_col_offset,
        )

    def _text(self, node: ast.expr) -> str:
        begin, end = self._span(node)
        return self._data[begin:end].decode()

    def _replace(self, operator: str, node: ast.expr | ast.stmt, text: str) -> None:
        self.found.append(Mutation(operator, node.lineno, *self._span(node), text))

    def _replace_between(self, operator: str, nodes: Sequence[ast.expr], words: tuple[str, str]) -> None:
        """Change the word, such as ``and``, that stands in each gap between neighboring nodes."""
        old, new = (word.encode() for word in words)
        begin, end = self._span(nodes[0])[1], self._span(nodes[-1])[0]
        text = bytearray(self._data[begin:end])
        for left, right in reversed(list(pairwise(nodes))):
            gap = slice(self._span(left)[1] - begin, self._span(right)[0] - begin)
            text[gap] = text[gap].replace(old, new, 1)
        line = self._data.count(b"\n", 0, begin + self._data[begin:end].find(old)) + 1
        self.found.append(Mutation(operator, line, begin, end, text.decode()))

    def _negate(self, test: ast.expr) -> None:
        """Negate a condition, unless another operator does the same."""
        match test:
            case ast.UnaryOp(op=ast.Not()):
                return
            case ast.Compare(ops=[operation]) if not isinstance(operation, ORDERINGS):
                return
        self._replace("condition", test, f"not ({self._text(test)})")

    def visit_Module(self, node: ast.Module) -> None:
        for statement in node.body:
            match statement:
                case ast.Assign(targets=[ast.Name(id=name)]) if not name.isupper():
                    continue  # `__all__`, or a name for a type
            self.visit(statement)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        defaults = [default for default in (*node.args.defaults, *node.args.kw_defaults) if default is not None]
        for child in (*defaults, *node.body):
            self.visit(child)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        for statement in node.body:
            self.visit(statement)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_Assert(self, node: ast.Assert) -> None:
        """Leave out."""

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """Leave out."""

    def visit_keyword(self, node: ast.keyword) -> None:
        if node.arg != "strict":
            self.visit(node.value)

    def visit_Raise(self, node: ast.Raise) -> None:
        self._replace("raise", node, "pass")

    def visit_Continue(self, node: ast.Continue) -> None:
        self._replace("continue", node, "pass")

    def visit_Break(self, node: ast.Break) -> None:
        self._replace("break", node, "pass")

    def visit_Expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Call):
            self._replace("call", node, "pass")
        self.generic_visit(node)

    def visit_If(self, node: ast.If) -> None:
        if not (isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"):
            self._negate(node.test)
            self.generic_visit(node)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        self._negate(node.test)
        self.generic_visit(node)

    def visit_While(self, node: ast.While) -> None:
        self._negate(node.test)
        self.generic_visit(node)

    def visit_comprehension(self, node: ast.comprehension) -> None:
        for test in node.ifs:
            self._negate(test)
        self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        for (left, right), operation in zip(pairwise((node.left, *node.comparators)), node.ops, strict=True):
            self._replace_between("comparison", (left, right), COMPARISONS[type(operation)])
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        self._replace_between("and/or", node.values, BOOLEAN[type(node.op)])
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        self._replace("sign" if isinstance(node.op, ast.USub) else "not", node, f"({self._text(node.operand)})")
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        if words := ARITHMETIC.get(type(node.op)):
            self._replace_between("arithmetic", (node.left, node.right), words)
        self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        if words := ARITHMETIC.get(type(node.op)):
            self._replace_between("arithmetic", (node.target, node.value), words)
        self.visit(node.value)

    def visit_Call(self, node: ast.Call) -> None:
        match node.func:
            case ast.Name(id="isinstance"):
                self.visit(node.args[0])
                return
            case ast.Name(id=name) if name in FUNCTIONS:
                self._replace("function", node.func, FUNCTIONS[name])
            case ast.Attribute(attr=name) if name in FUNCTIONS:
                text = self._text(node.func).removesuffix(name) + FUNCTIONS[name]
                self._replace("function", node.func, text)
        self.generic_visit(node)

    def visit_Slice(self, node: ast.Slice) -> None:
        for bound, step in ((node.lower, "+ 1"), (node.upper, "- 1")):
            if bound is not None and not isinstance(bound, ast.Constant | ast.UnaryOp):
                self._replace("slice", bound, f"({self._text(bound)}) {step}")
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, bool):
            self._replace("constant", node, str(not node.value))
        elif isinstance(node.value, int):
            for other in {0: (1,), 1: (0, 2)}.get(node.value, (node.value + 1,)):
                self._replace("constant", node, str(other))
