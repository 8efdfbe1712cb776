"""MSCCL XML as the runtimes' parsers read it: algorithm, gpus, thread blocks and steps.

All three parsers descend from NCCL's: no prolog, no document type, double quotes only, attributes set off by single
spaces, no text between elements.  Nothing is expanded and nothing recurses, so time and memory are linear in the file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, NoReturn

from ....support.validation import shown
from ...interpreter.findings import Findings

MAX_TEXT = 254  # Characters of a name or a value; the parsers allocate no more and write beyond
MAX_ATTRIBUTES = 16  # For tags with more than four times as many the expression below is not made
MAX_CHILDREN = 1024
MAX_ELEMENTS = 2**20
DEPTH = 4  # Elements below the steps of the thread blocks of the gpus of the algorithm are none that anybody knows

_SPACE = re.compile(r"[ \n\r]*")
_TAG = re.compile(r'<(/?)([A-Za-z_][\w.:-]*)([^<>"]*(?:"[^"]*"[^<>"]*){0,64})>')
_ATTRIBUTE = re.compile(r' ([A-Za-z_][\w.:-]*)="([^"]*)"')
_END = re.compile(r" *\/?")


class Element(NamedTuple):
    """An XML element without its content."""

    path: tuple[str, ...]  # Tags from the root to this one, of which the first five are kept
    line: int  # From 1
    attributes: dict[str, str]


class UnreadableError(Exception):
    """The parsers stop here; the reason is among the findings; never leaves `read_document`."""


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
                _refuse(findings, f"</{name[:40]}> closes an element that is not open", line)
            stack.pop()
            children.pop()
        else:
            attributes = _attributes(rest, line, findings)
            children[-1] += 1
            elements += 1
            if elements > MAX_ELEMENTS:
                _refuse(findings, f"there are more than {MAX_ELEMENTS} elements; no parser stores as many", line)
            if stack and children[-1] == MAX_CHILDREN + 1:
                message = f"<{stack[-1]}> has more than {MAX_CHILDREN} elements, for which the parsers have no space"
                findings.add("wrong data", message, at(line))
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
    """Name a line of the file."""
    return f"line {line}"


def _refuse(findings: Findings, message: str, line: int) -> NoReturn:
    findings.add("rejected", message, at(line))
    raise UnreadableError


def _skip(text: str, position: int, line: int, findings: Findings) -> int:
    """Skip white space and comments."""
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
                _refuse(findings, f"the parsers do not support a {what}", line)
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
            message = (
                f"attribute {name[:40]} is longer than the {MAX_TEXT} characters that the parsers allocate, and "
                "they write beyond it"
            )
            findings.add("wrong data", message, at(line))
        if name in attributes:
            findings.add("note", f"attribute {name[:40]} appears twice; the first one is used", at(line))
        attributes.setdefault(name, value)
    if number > MAX_ATTRIBUTES:
        _refuse(findings, f"an element has {number} attributes; the parsers have space for {MAX_ATTRIBUTES}", line)
    return attributes


INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1
IGNORED = "is an element that the parsers ignore"
_INTEGER = re.compile(r"[ \n\r]*([+-]?)(0[xX][0-9a-fA-F]+|[0-9]+)")


class Step(NamedTuple):
    """A step element."""

    line: int
    number: int
    kind: str
    source: str
    source_start: int
    target: str
    target_start: int
    chunks: int
    wait_block: int
    wait_step: int
    signals: int


@dataclass
class Block:
    """A tb element."""

    line: int
    number: int
    send: int
    recv: int
    channel: int
    steps: list[Step] = field(default_factory=list, init=False)


@dataclass
class Gpu:
    """A gpu element."""

    line: int
    number: int
    input_chunks: int
    output_chunks: int
    scratch_chunks: int
    blocks: list[Block] = field(default_factory=list, init=False)


@dataclass
class Document:
    """The algo element, with its attributes that are text and those that are numbers."""

    line: int
    words: Mapping[str, str]
    numbers: Mapping[str, int]
    gpus: list[Gpu] = field(default_factory=list, init=False)


WORDS = ("name", "proto", "coll")
NUMBERS = ("nchannels", "nchunksperloop", "ngpus", "inplace", "outofplace", "minBytes", "maxBytes", "nthreads")
LARGE = ("minBytes", "maxBytes")
GPU = ("id", "i_chunks", "o_chunks", "s_chunks")
BLOCK = ("id", "send", "recv", "chan")
STEP_NUMBERS = ("s", "srcoff", "dstoff", "cnt", "depid", "deps", "hasdep")
STEP_WORDS = ("type", "srcbuf", "dstbuf")


def read_document(text: str, required: tuple[str, ...], findings: Findings) -> Document | None:
    """Read a file; its algo element must have the `required` attributes."""
    builder = _Builder(required, findings)
    try:
        for element in scan(text, findings):
            builder.add(element)
    except UnreadableError:
        return None
    return None if builder.broken else builder.document


class _Builder:
    """Builds a document from elements; `broken` once an attribute is missing."""

    def __init__(self, required: tuple[str, ...], findings: Findings) -> None:
        self.required = required
        self.findings = findings
        self.document: Document | None = None
        self.broken = False

    def add(self, element: Element) -> None:
        """Add an element."""
        line, path = element.line, element.path
        if len(path) == 1 and path[0] != "algo":
            self.findings.add("rejected", f"the file starts with <{path[0][:40]}>; expected <algo>", at(line))
            self.broken = True
        elif path == ("algo",):
            self._add_algorithm(element)
        elif self.broken or self.document is None:
            return
        elif path == ("algo", "gpu"):
            if self._has(element, GPU):
                self.document.gpus.append(Gpu(line, *self._integers(element, GPU)))
        elif path == ("algo", "gpu", "tb"):
            if self._has(element, BLOCK):
                self.document.gpus[-1].blocks.append(Block(line, *self._integers(element, BLOCK)))
        elif path == ("algo", "gpu", "tb", "step"):
            if self._has(element, (*STEP_NUMBERS, *STEP_WORDS)):
                number, source_start, target_start, *rest = self._integers(element, STEP_NUMBERS)
                kind, source, target = (element.attributes[name] for name in STEP_WORDS)
                step = Step(line, number, kind, source, source_start, target, target_start, *rest)
                self.document.gpus[-1].blocks[-1].steps.append(step)
        else:
            self.findings.add("note", f"<{path[-1][:40]}> {IGNORED}", at(line))

    def _add_algorithm(self, element: Element) -> None:
        self._has(element, self.required)
        words = {name: element.attributes[name] for name in WORDS if name in element.attributes}
        present = [name for name in NUMBERS if name in element.attributes]
        self.document = Document(element.line, words, dict(zip(present, self._integers(element, present), strict=True)))

    def _has(self, element: Element, names: tuple[str, ...]) -> bool:
        """Whether an element has all its attributes; each missing one is a finding."""
        missing = [name for name in names if name not in element.attributes]
        for name in missing:
            self.findings.add("rejected", f"<{element.path[-1]}> has no attribute {name}; add it", at(element.line))
            # What the header lacks others may do without, so that the rest is worth reading.
            self.broken |= element.path != ("algo",) or name in ("nchannels", "nchunksperloop", "ngpus", "coll")
        return not missing

    def _integers(self, element: Element, names: Sequence[str]) -> list[int]:
        return [self._integer(element, name) for name in names]

    def _integer(self, element: Element, name: str) -> int:
        """Read a number as strtol with base 0 does; a finding where that differs from its decimal value."""
        text = element.attributes[name]
        if text.isascii() and text.isdigit() and len(text) < 10 and (text[0] != "0" or text == "0"):
            return int(text)
        found = _INTEGER.match(text)
        whole = found is not None and found.end() == len(text)
        value = 0 if found is None else _wrap_integer(found)
        most = INT64_MAX if name in LARGE else INT32_MAX
        if not whole:
            self._add_integer_finding(
                element, name, f"which is no whole number; the parsers read {value} and do not say so"
            )
        elif not -most - 1 <= value <= most:
            self._add_integer_finding(element, name, f"which does not fit an int of {64 if name in LARGE else 32} bits")
            return max(-most - 1, min(value, most))
        elif text.isdigit() and int(text) != value:
            self._add_integer_finding(
                element, name, f"which is read as {value}, because numbers that begin with 0 are octal"
            )
        elif str(value) != text:
            self.findings.add("note", f"{name} {shown(text)} is read as {value}", at(element.line))
        return value

    def _add_integer_finding(self, element: Element, name: str, what: str) -> None:
        self.findings.add("wrong data", f"{name} is {shown(element.attributes[name])}, {what}", at(element.line))


def _wrap_integer(found: re.Match[str]) -> int:
    sign, digits = found.groups()
    if digits[:2] in ("0x", "0X"):
        value = int(digits[:34], 16)
    elif digits[0] == "0":
        octal = re.match(r"0[0-7]*", digits)
        value = int(octal[0][:44], 8) if octal else 0
    else:
        value = int(digits[:25])
    return -value if sign == "-" else value
