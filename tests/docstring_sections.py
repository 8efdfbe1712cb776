"""What numpydoc sections the docstring of a function or class should have, judged by its signature."""

from __future__ import annotations

import enum
import inspect
import re
import types
from collections.abc import Iterator

__all__ = ["docstring_of", "is_function", "missing_sections"]

REPEATED_TYPE = re.compile(r"(?m)^(?:Returns|Yields)\n-+\n[^\n]+(?:\n\n|\Z)")
"""A section that says no more than the annotation."""
ENTRY = re.compile(r"(?m)^(\*{0,2}\w+(?:, \*{0,2}\w+)*)(?: : .*)?$")


def is_function(thing: object) -> bool:
    """Whether it is called as a function is, whatever it has been wrapped into."""
    return (
        callable(thing) and not inspect.isclass(thing) and not isinstance(thing, types.GenericAlias | types.UnionType)
    )


def docstring_of(thing: object) -> str:
    """The docstring, and not that of the class of a wrapper."""
    plain = inspect.unwrap(thing) if callable(thing) else thing
    if inspect.isclass(plain) or inspect.isroutine(plain):
        return inspect.getdoc(plain) or ""
    return inspect.cleandoc(getattr(plain, "__dict__", {}).get("__doc__") or "")


def missing_sections(thing: object) -> list[str]:
    """Sections that are missing or do not say what they should, and "annotation" without that of the result.

    A single parameter needs no section, and several may be those of another function: "Parameters as for ...".
    """
    return list(_of_class(thing) if inspect.isclass(thing) else _of_function(thing) if is_function(thing) else ())


def _of_function(thing: object) -> Iterator[str]:
    text = docstring_of(thing)
    signature = inspect.signature(thing)
    described, names = set(_names(text, "Parameters")), set(signature.parameters)
    if described != names and (described or (len(names) > 1 and "Parameters as " not in text)):
        yield "Parameters"
    if signature.return_annotation is inspect.Signature.empty:
        yield "annotation"
    if REPEATED_TYPE.search(text):
        yield "Returns"


def _of_class(thing: type) -> Iterator[str]:
    """Fields, which are annotated, unless the first line has them all, or else what a constructor of its own takes."""
    if issubclass(thing, enum.Enum | BaseException):  # Words for members and messages stand beside them.
        return
    annotated = vars(thing).get("__annotations__", {})
    fields = [name for name, what in annotated.items() if name[0] != "_" and "ClassVar" not in str(what)]
    texts = [inspect.getdoc(each) or "" for each in thing.__mro__[:-1]]
    described = {name for text in texts for title in ("Attributes", "Parameters") for name in _names(text, title)}
    if not set(fields) <= described | set(re.findall(r"`(\w+)`", texts[0].partition("\n")[0])):
        yield "Attributes"
    elif not fields and "__init__" in vars(thing):
        own = [*inspect.signature(vars(thing)["__init__"]).parameters][1:]
        if not set(own) <= described:
            yield "Parameters"


def _names(text: str, title: str) -> Iterator[str]:
    """The names that a section lists."""
    _, found, rest = f"\n{text}".partition(f"\n{title}\n{'-' * len(title)}\n")
    section = re.split(r"\n\n?[^\n]+\n---+\n", rest)[0] if found else ""
    for entry in ENTRY.findall(section):
        yield from (name.lstrip("*") for name in entry.split(", "))
