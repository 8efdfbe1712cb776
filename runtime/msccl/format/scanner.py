"""Takes MSCCL XML apart the way the runtimes' own parsers do, which is not the way of XML.

All three descend from NCCL's small parser: no prolog and no document type, double quotes only, attributes set off by
single spaces, no text between elements, and of white space there only spaces and line ends.  Nothing is expanded and
nothing is nested by calls, so that time and memory grow with the size of the file alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple, NoReturn

from ....support.validation import shown
from ...interpreter.findings import Findings

__all__ = ["Element", "UnreadableError", "at", "scan"]

MAX_TEXT = 254
"""Characters of a name or a value; for longer ones the parsers have no room and write on."""
MAX_ATTRIBUTES = 16
"""For tags with more than four times as many the expression below is not made."""
MAX_CHILDREN = 1024
MAX_ELEMENTS = 2**20
DEPTH = 4
"""Elements below the steps of the thread blocks of the gpus of the algorithm are none that anybody knows."""

_SPACE = re.compile(r"[ \n\r]*")
_TAG = re.compile(r'<(/?)([A-Za-z_][\w.:-]*)([^<>"]*(?:"[^"]*"[^<>"]*){0,64})>')
_ATTRIBUTE = re.compile(r' ([A-Za-z_][\w.:-]*)="([^"]*)"')
_END = re.compile(r" *\/?")


class Element(NamedTuple):
    """An element without what is in it.

    `path`: Tags from the root to this one, of which the first five are told.
    `line`: From 1.
    """

    path: tuple[str, ...]
    line: int
    attributes: dict[str, str]


class UnreadableError(Exception):
    """The parsers stop here, for a reason that is among the findings; never leaves `read_document`."""


def scan(text: str, findings: Findings) -> Iterator[Element]:
    """Yield the elements in the order in which they open."""
    stack: list[str] = []
    children = [0]
    position, line, elements = 0, 1, 0
    while True:
        after = _skip(text, position, line, findings)
        line += text.count("\n", position, after)
        position = after
        if position == len(text):
            break
        tag = _TAG.match(text, position)
        if tag is None or (not stack and children[0]):
            what = "more than one element" if tag else f"{shown(text[position : position + 20])}, which is no element"
            _refuse(findings, f"there is {what}; expected one <algo> with gpu, tb and step elements", line)
        closing, name, rest = tag.groups()
        if closing:
            if not stack or stack[-1] != name:
                _refuse(findings, f"</{name[:40]}> closes what was not opened", line)
            stack.pop()
            children.pop()
        else:
            attributes = _attributes(rest, line, findings)
            children[-1] += 1
            elements += 1
            if elements > MAX_ELEMENTS:
                _refuse(findings, f"there are more than {MAX_ELEMENTS} elements; no parser stores as many", line)
            if stack and children[-1] == MAX_CHILDREN + 1:
                findings.add(
                    "wrong data",
                    f"<{stack[-1]}> has more than {MAX_CHILDREN} elements, for which the parsers have no space",
                    at(line),
                )
            yield Element((*stack[:DEPTH], name), line, attributes)
            if not rest.endswith("/"):
                stack.append(name)
                children.append(0)
        line += rest.count("\n")
        position = tag.end()
    if stack or not children[0]:
        where = f"before </{stack[-1][:40]}>" if stack else "without an element"
        _refuse(findings, f"the file ends {where}; it was cut short", line)


def at(line: int) -> str:
    """Name a place of the file."""
    return f"line {line}"


def _refuse(findings: Findings, message: str, line: int) -> NoReturn:
    findings.add("rejected", message, at(line))
    raise UnreadableError


def _skip(text: str, position: int, line: int, findings: Findings) -> int:
    """Go on to the next element, past white space and comments."""
    while True:
        start = position
        position = _SPACE.match(text, position).end()  # type: ignore[union-attr]  # it matches nothing, too
        line += text.count("\n", start, position)
        if text.startswith("<!--", position):
            end = text.find("-->", position + 4)
            if end < 0:
                _refuse(findings, "a comment has no end", line)
            line += text.count("\n", position, end)
            position = end + 3
            continue
        if text.startswith("\t", position):
            _refuse(findings, "there is a tab between elements; indent with spaces", line)
        for start_of, what in (("<?", "prolog; delete the line <?xml ...?>"), ("<!", "document type; delete it")):
            if text.startswith(start_of, position):
                _refuse(findings, f"the parsers take no {what}", line)
        return position


def _attributes(rest: str, line: int, findings: Findings) -> dict[str, str]:
    """Read the attributes of an element."""
    left = _ATTRIBUTE.sub("", rest)
    if not _END.fullmatch(left):
        _refuse(
            findings,
            f'near {shown(left.strip()[:30])} an element is not written as name="value", in double quotes, with a '
            "space and no tab or line end before each",
            line,
        )
    attributes: dict[str, str] = {}
    number = left.count(" ")  # To the parsers a space with nothing after it starts an attribute, too.
    for found in _ATTRIBUTE.finditer(rest):
        name, value = found.groups()
        number += 1
        if max(len(name), len(value)) > MAX_TEXT:
            findings.add(
                "wrong data",
                f"attribute {name[:40]} is longer than the {MAX_TEXT} characters that the parsers allocate, and "
                "they write beyond it",
                at(line),
            )
        if name in attributes:
            findings.add("note", f"attribute {name[:40]} appears twice; the first one is used", at(line))
        attributes.setdefault(name, value)
    if number > MAX_ATTRIBUTES:
        _refuse(findings, f"an element has {number} attributes; the parsers have space for {MAX_ATTRIBUTES}", line)
    return attributes
