"""Bounded XML parser of NCCL and RCCL topology files, which keeps line numbers.

Elements of unknown names are skipped with their content, as NCCL does.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from xml.parsers import expat

from ....errors import FileFormatError
from ....support.validation import shown
from ..sources.document import Document

MAX_XML_DEPTH = 64  # nesting depth; PCIe switches are some three deep
MAX_XML = 4 * 2**20
MAX_ELEMENTS = 50_000  # a rack of 72 GPUs has some two thousand, in some hundred thousand characters
MAX_VALUE = 255  # characters of an attribute; NCCL keeps no more (``src/graph/xml.h``)

PARENTS = {
    "cpu": ("system",),
    "pci": ("cpu", "pci"),
    "gpu": ("pci",),
    "nvlink": ("gpu",),
    "xgmi": ("gpu",),
    "c2c": ("gpu",),
    "nic": ("cpu", "pci"),
    "net": ("nic",),
}
"""The elements that are kept, and their allowed parents."""

FOREIGN_ROOTS = {
    "topology": "hwloc's description of a machine, which has no NVLinks; expected a file of NCCL_TOPO_DUMP_FILE",
    "graphs": "a result of NCCL's search (NCCL_GRAPH_DUMP_FILE), not a network; expected one of NCCL_TOPO_DUMP_FILE",
    "algo": "an MSCCL schedule, not a network; see `collopt lint`",
    "html": "a web page; save the file itself, not the page that shows it",
}
"""Descriptions of XML files with other root elements."""

_INTEGER = re.compile(r"-?[0-9]{1,12}")


@dataclass(eq=False, repr=False, slots=True)
class Element:
    """One element."""

    document: Document  # the file
    tag: str  # one of ``system``, ``cpu``, ``pci``, ``gpu``, ``nvlink``, ``xgmi``, ``c2c``, ``nic``, ``net``
    line: int  # its first line, from 1
    attributes: dict[str, str]  # as written
    parent: Element | None  # None for ``system``
    children: list[Element] = field(default_factory=list)  # in file order

    def error(self, message: str) -> FileFormatError:
        """Return an error at the line of this element."""
        return self.document.error(message, self.line)

    def get(self, name: str) -> str:
        """Return an attribute, or an empty text if there is none."""
        return self.attributes.get(name, "")

    def required(self, name: str) -> str:
        """Return a required attribute."""
        if not (value := self.get(name).strip()):
            raise self.error(f"<{self.tag}> has no {name}; dump the file again")
        return value

    def integer(self, name: str, least: int, most: int, *, default: int | None = None) -> int:
        """Return an attribute as an integer; `default`, if any, where it is missing or empty."""
        value = self.get(name).strip()
        if not value and default is not None:
            return default
        if not _INTEGER.fullmatch(value) or not least <= int(value) <= most:
            raise self.error(
                f"{name} of <{self.tag}> is {shown(self.get(name))}; expected a whole number from {least} to {most}"
            )
        return int(value)

    def descendants(self, *tags: str) -> Iterator[Element]:
        """Yield the elements of these tags at any depth, in file order."""
        for child in self.children:
            if child.tag in tags:
                yield child
            yield from child.descendants(*tags)

    def ancestor(self, tag: str) -> Element:
        """Return the nearest ancestor of this tag."""
        element = self.parent
        while element is not None and element.tag != tag:
            element = element.parent
        assert element is not None  # PARENTS puts everything inside a cpu, and gpu inside pci
        return element


def read_tree(document: Document) -> Element:
    """Parse a topology file and return its ``system`` element."""
    if len(document.text) > MAX_XML:
        raise document.error(f"the file has more than {MAX_XML} characters; expected the dump of one machine")
    reader = _TreeBuilder(document)
    # The text is decoded already, whatever encoding the file declares.
    reader.parser = parser = expat.ParserCreate("utf-8")
    parser.StartDoctypeDeclHandler = reader.doctype
    parser.StartElementHandler = reader.start
    parser.EndElementHandler = reader.end
    try:
        parser.Parse(document.text.encode(errors="replace"), True)
    except expat.ExpatError as error:
        reason = expat.ErrorString(error.code)
        raise document.error(f"the file is not well-formed XML ({reason}); is it cut short?", error.lineno) from None
    assert reader.root is not None  # expat refuses a document without a root
    return reader.root


class _TreeBuilder:
    """Builds the tree from the parser's events."""

    parser: expat.XMLParserType

    def __init__(self, document: Document) -> None:
        self.document = document
        self.root: Element | None = None
        self.open: list[Element] = []
        self.skipped = 0
        """Open elements that are not kept."""
        self.count = 0

    def error(self, message: str) -> FileFormatError:
        return self.document.error(message, self.parser.CurrentLineNumber)

    def doctype(self, name: str, *_: object) -> None:
        if name.lower() in FOREIGN_ROOTS:
            raise self.error(f"this is {FOREIGN_ROOTS[name.lower()]}")
        raise self.error("the file has a document type (<!DOCTYPE), which no topology file needs; remove it")

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        self.count += 1
        if self.count > MAX_ELEMENTS:
            raise self.error(f"the file has more than {MAX_ELEMENTS} elements; expected the dump of one machine")
        if len(self.open) + self.skipped >= MAX_XML_DEPTH:
            raise self.error(f"more than {MAX_XML_DEPTH} elements stand inside each other; expected PCIe switches")
        for name, value in attributes.items():
            if len(name) > MAX_VALUE or len(value) > MAX_VALUE:
                raise self.error(f"attribute {shown(name)} is too long; expected at most {MAX_VALUE} characters")
        if not self.open:
            self._begin(tag, attributes)
        elif self.skipped or tag not in PARENTS:
            self.skipped += 1
        elif self.open[-1].tag not in PARENTS[tag]:
            places = " or ".join(f"<{place}>" for place in PARENTS[tag])
            raise self.error(f"<{tag}> stands in <{self.open[-1].tag}>; expected it in {places}")
        else:
            self._open(tag, attributes, self.open[-1])

    def end(self, _: str) -> None:
        if self.skipped:
            self.skipped -= 1
        else:
            self.open.pop()

    def _begin(self, tag: str, attributes: dict[str, str]) -> None:
        if tag in FOREIGN_ROOTS:
            raise self.error(f"this is {FOREIGN_ROOTS[tag]}")
        if tag != "system":
            raise self.error(f"the file starts with {shown(f'<{tag}>')}; expected <system>, as NCCL_TOPO_DUMP_FILE has")
        self.root = self._open(tag, attributes, None)
        if (version := self.root.get("version")) not in ("1", "2"):
            raise self.error(f"version of <system> is {shown(version)}; expected 1 (NCCL) or 2 (RCCL)")

    def _open(self, tag: str, attributes: dict[str, str], parent: Element | None) -> Element:
        element = Element(self.document, tag, self.parser.CurrentLineNumber, attributes, parent)
        if parent is not None:
            parent.children.append(element)
        self.open.append(element)
        return element
