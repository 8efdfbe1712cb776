"""MSCCL XML as the runtimes' parsers read it: algorithm, gpus, thread blocks and steps.

Nothing is expanded and nothing recurses, so time and memory are linear in the file.  The rules, with the lines of the
sources, are in docs/reference/msccl-xml.md.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, NoReturn

from ...support.validation import shown
from ..programs.findings import Findings

MAX_NAME = 253  # Characters of a name; the parsers refuse longer ones
MAX_TEXT = 255  # Characters of a value; the parsers allocate no more and write beyond
MAX_ATTRIBUTES = 16  # Those after them are not kept
MAX_CHILDREN = 1024
MAX_ELEMENTS = 2**20
KNOWN = ("algo", "gpu", "tb", "step")

_SPACE = re.compile(r"[ \n\r]*")
_TAG = re.compile(r'<([A-Za-z_]\w{0,99})((?: [A-Za-z_]\w{0,99}="[^"]*"){0,15}) ?(/?)>')
_ATTRIBUTE = re.compile(r' (\w+)="([^"]*)"')
_TOKEN = re.compile(r"[^ =>/\n\r]*")


class Element(NamedTuple):
    """An XML element without its content."""

    path: tuple[str, ...]  # Tags from the root to this one, five at most
    line: int  # From 1
    attributes: dict[str, str]


class UnreadableError(Exception):
    """The parsers stop here; the reason is among the findings; never leaves `read_document`."""


def scan(text: str, findings: Findings, add: Callable[[Element], bool]) -> None:
    """Give each element, in the order in which they open, to `add`, which says whether a rank reads what is inside."""
    stack: list[tuple[str, bool, bool]] = []  # Of each open element its name, whether it is kept, and what is inside
    children = [0]
    position, line, elements = 0, 1, 0
    while True:
        after = _skip(text, position, line, findings)
        line += text.count("\n", position, after)
        if after == len(text):
            break
        name, attributes, single, position = _tag(text, after, line, findings)
        if name.startswith("/"):
            # Of what the parsers do not keep they do not keep the name either.
            if stack and stack[-1][1] and stack[-1][0] != name[1:]:
                _refuse(findings, f"<{name[:40]}> closes an element that is not open", line)
            if stack:
                stack.pop()
                children.pop()
                continue
        is_kept = all(inside for *_, inside in stack[-1:]) and name == (*KNOWN, "")[min(len(stack), len(KNOWN))]
        if stack and stack[-1] == (KNOWN[-1], True, True):
            _refuse(findings, "there is an element inside of a step, at which the parsers crash", line)
        children[-1] += is_kept
        elements += 1
        if elements > MAX_ELEMENTS:
            _refuse(findings, f"there are more than {MAX_ELEMENTS} elements; no parser stores as many", line)
        if stack and children[-1] == MAX_CHILDREN + 1:
            message = f"<{stack[-1][0]}> has more than {MAX_CHILDREN} elements, for which the parsers have no space"
            findings.add("wrong data", message, at(line))
        path = *(tag for tag, *_ in stack[: len(KNOWN)]), name
        inside = add(Element(path, line, _attributes(attributes, line, findings))) and is_kept
        if not single:
            stack.append((name, is_kept, inside))
            children.append(0)
        line += text.count("\n", after, position)
    if stack or not elements:
        where = f"before </{stack[-1][0][:40]}>" if stack else "without an element"
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
            end, first = text.find("-->", position + 4), _TOKEN.match(text, position).end()  # type: ignore[union-attr]
            if end < 0:
                _refuse(findings, "a comment has no end", line)
            if text[first] == "=" or first - position > MAX_NAME + 1:
                _refuse(findings, "a comment starts with an = or a long word; begin it with a space", line)
            line += text.count("\n", position, end)
            position = end + 3
            continue
        if text.startswith("\t", position):
            _refuse(findings, "there is a tab between elements; indent with spaces", line)
        for start_of, what in (("<?", "prolog; delete the line <?xml ...?>"), ("<!", "document type; delete it")):
            if text.startswith(start_of, position):
                _refuse(findings, f"the parsers do not support a {what}", line)
        if position < len(text) and text[position] != "<":
            what = f"{shown(text[position : position + 20])}, which is no element"
            _refuse(findings, f"there is {what}; expected one <algo> with gpu, tb and step elements", line)
        return position


def _tag(text: str, start: int, line: int, findings: Findings) -> tuple[str, list[tuple[str, str]], bool, int]:
    """Read a tag: name, attributes, whether it has no content, and where it ends."""
    if match := _TAG.match(text, start):
        return match[1], _ATTRIBUTE.findall(match[2]), bool(match[3]), match.end()
    try:
        return _odd_tag(text, start)
    except ValueError:
        message = (
            f'near {shown(text[start : start + 60].strip())} an element is not written as name="value", in double '
            "quotes, with a space and no tab or line end before each"
        )
    _refuse(findings, message, line)


def _odd_tag(text: str, start: int) -> tuple[str, list[tuple[str, str]], bool, int]:
    """Read a tag token by token, as the parsers do, to which any space starts an attribute; else `ValueError`."""

    def token(begin: int) -> tuple[str, int]:
        end = _TOKEN.match(text, begin).end()  # type: ignore[union-attr]  # it matches nothing, too
        if end == len(text) or end - begin > MAX_NAME + (text[end] == "="):
            raise ValueError
        return text[begin:end], end

    closing = text.startswith("</", start)
    name, end = token(start + 1 + closing)
    attributes = []
    while text[end] == " " and not closing:
        (key, end), value = token(end + 1), ""
        if text[end] == "=":
            close = text.find('"', end + 2)
            if text[end + 1 : end + 2] not in ('"', "'") or not 0 < close < len(text) - 1:
                raise ValueError
            value, end = text[end + 2 : close], close + 1
        attributes.append((key, value))
    single = text[end] == "/"
    if single and not closing:
        end = token(end + 1)[1]
    if text[end] != ">":
        raise ValueError
    return "/" * closing + name, attributes[:MAX_ATTRIBUTES], single, end + 1


def _attributes(pairs: list[tuple[str, str]], line: int, findings: Findings) -> dict[str, str]:
    """Attributes by name."""
    attributes: dict[str, str] = {}
    for name, value in pairs:
        if len(value) > MAX_TEXT:
            message = f"attribute {name[:40]} is longer than {MAX_TEXT} characters, and the parsers write beyond these"
            findings.add("wrong data", message, at(line))
        if name in attributes and name:
            findings.add("note", f"attribute {name[:40]} appears twice; the first one is used", at(line))
        attributes.setdefault(name, value)
    return attributes


INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1
BITS = {"minBytes": 64, "maxBytes": 64, "srcoff": 16, "dstoff": 16}  # That are kept of a number, if not 32
IGNORED = "is an element that the parsers ignore"
_PLAIN = re.compile(r"0|[1-9][0-9]*")
_INTEGER = re.compile(r"[ \t-\r]*([+-]?)(0[xX][0-9a-fA-F]+|[0-9]+)")


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
GPU = ("id", "i_chunks", "o_chunks", "s_chunks")
BLOCK = ("id", "send", "recv", "chan")
STEP_NUMBERS = ("s", "srcoff", "dstoff", "cnt", "depid", "deps", "hasdep")
STEP_WORDS = ("type", "srcbuf", "dstbuf")


def read_document(text: str, required: tuple[str, ...], findings: Findings) -> Document | None:
    """Read a file; its algo element must have the `required` attributes."""
    builder = _Builder(required, findings)
    try:
        scan(text, findings, builder.add)
    except UnreadableError:
        return None
    if builder.document is None and not builder.broken:
        findings.add("rejected", "there is no <algo> element")
    return None if builder.broken else builder.document


@dataclass
class _Builder:
    """Builds a document from elements."""

    required: tuple[str, ...]
    findings: Findings
    document: Document | None = None
    broken: bool = False  # Whether an attribute is missing
    complete: bool = False  # Whether the algo element has ended
    skips: bool = False  # Whether what comes is inside of a gpu element that no rank reads

    def add(self, element: Element) -> bool:
        """Add an element; return whether a rank reads what is inside of it."""
        self._add(element)
        return not self.skips

    def _add(self, element: Element) -> None:
        line, path = element.line, element.path
        if len(path) == 1:
            self._add_outermost(element)
        elif self.broken or self.complete or self.document is None:
            return
        elif path == ("algo", "gpu"):
            self._add_gpu(element, self.document)
        elif self.skips:
            return
        elif path == ("algo", "gpu", "tb"):
            if self._has(element, BLOCK):
                self.document.gpus[-1].blocks.append(Block(line, *self._integers(element, BLOCK)))
        elif path == ("algo", "gpu", "tb", "step"):
            if self._has(element, (*STEP_NUMBERS, *STEP_WORDS)):
                number, source_start, target_start, *numbers = self._integers(element, STEP_NUMBERS)
                kind, source, target = (element.attributes[name] for name in STEP_WORDS)
                step = Step(line, number, kind, source, source_start, target, target_start, *numbers)
                self.document.gpus[-1].blocks[-1].steps.append(step)
        else:
            self.findings.add("note", f"<{path[-1][:40]}> {IGNORED}", at(line))

    def _add_outermost(self, element: Element) -> None:
        """Add the algo element; runtimes that read a folder take its attributes from the first element of all."""
        name, where = element.path[0], at(element.line)
        if self.document is None and name == KNOWN[0]:
            self._add_algorithm(element)
        elif self.document is None and "outofplace" in self.required:
            self.findings.add("rejected", f"the file starts with <{name[:40]}>; expected <algo>", where)
            self.broken = True
        else:
            self.complete = self.document is not None
            message = f"outside of <algo>, <{name[:40]}> {IGNORED}"
            twice = f"there is more than one <{KNOWN[0]}>; the parsers use the first"
            self.findings.add("note", twice if name == KNOWN[0] else message, where)

    def _add_gpu(self, element: Element, document: Document) -> None:
        """Add a gpu element; those of ranks that do not exist are not read."""
        if not self._has(element, ("id",)):
            return
        rank, ranks = self._integer(element, "id"), document.numbers["ngpus"]
        self.skips = not 0 <= rank < ranks
        if self.skips:
            message = f"there is a gpu element with id {rank}, which none of the {ranks} ranks reads"
            self.findings.add("note", message, at(element.line))
        elif self._has(element, GPU):
            document.gpus.append(Gpu(element.line, *self._integers(element, GPU)))

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
        if _PLAIN.fullmatch(text) and len(text) < (5 if name in BITS else 10):
            return int(text)
        match = _INTEGER.match(text)
        value = 0 if match is None else _read_integer(match)
        bits = BITS.get(name, 32)
        # strtol gives the largest number instead of a larger one, and the parsers keep its last bits.
        kept: int = (max(-INT64_MAX - 1, min(value, INT64_MAX)) + 2 ** (bits - 1)) % 2**bits - 2 ** (bits - 1)
        problem = ""
        if match is None or match.end() < len(text):
            problem = f"which is no whole number; the parsers read {kept} and do not say so"
        elif value != kept:
            problem = f"which does not fit an int of {bits} bits and is read as {kept}"
        elif text.isdigit() and int(text) != value:
            problem = f"which is read as {value}, because numbers that begin with 0 are octal"
        if problem:
            # What comes of the number that is read, the rest of the file shows.
            self.findings.add("note", f"{name} is {shown(text)}, {problem}", at(element.line))
        elif str(value) != text:
            self.findings.add("note", f"{name} {shown(text)} is read as {value}", at(element.line))
        return kept


def _read_integer(match: re.Match[str]) -> int:
    sign, digits = match.groups()
    if digits[:2] in ("0x", "0X"):
        value = int(digits[:34], 16)
    elif digits[0] == "0":
        value = int(re.split("[89]", digits[:44])[0], 8)
    else:
        value = int(digits[:25])
    return -value if sign == "-" else value
