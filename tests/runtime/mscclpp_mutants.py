"""MSCCL++ plans broken by rule: one entry of each kind that plan files have, changed in every way of a list."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mscclpp_plans import Document

MISSING = object()
CHANGES: dict[str, Callable[[Any], Any]] = {
    "left out": lambda _: MISSING,
    "null": lambda _: None,
    "a text": lambda _: "x",
    "a list": lambda _: [],
    "an object": lambda _: {},
    "true": lambda _: True,
    "-1": lambda _: -1,
    "0": lambda _: 0,
    "more": lambda value: value + 1 if isinstance(value, int) else value * 2,
    "fewer": lambda value: value + 0.5 if isinstance(value, int) else value[:-1],
    "large": lambda _: 1_000_003,
}
"""What an entry becomes; lists and texts are doubled, or lose their end, where numbers become one and a half more."""

TEXTS: dict[str, Callable[[str], str]] = {
    "empty": lambda _: "",
    "cut": lambda text: text[:-1],
    "two": lambda text: text + text,
    "a comma too many": lambda text: text[:-1] + ",}",
    "a comment": lambda text: "// plan\n" + text,
    "another quote": lambda text: text.replace('"', "'"),
    "not a number": lambda text: text.replace("16", "NaN"),
    "a leading zero": lambda text: text.replace(": 16", ": 016"),
    "a byte order mark": lambda text: "\ufeff" + text,
    "a key twice": lambda text: text.replace('"name"', '"name": "first", "name"', 1),
    "white space": lambda text: f"\n\t {text}\r\n",
    "a list of it": lambda text: f"[{text}]",
    "a control character": lambda text: text.replace("Simple", "Sim\x01ple"),
    "an unknown key": lambda text: text.replace('"name"', '"comment": "none", "name"', 1),
}


RECORDED: dict[str, Any] = json.loads(Path(__file__).with_name("mscclpp_verdicts.json").read_text(encoding="utf-8"))
BASES: dict[str, Document] = RECORDED["bases"]
"""Plans of two ranks that add up their data: in one box, in two boxes, and by a switch."""


def entries(value: Any, kind: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Yield the kind of every entry, and the object or list that holds it with its key there."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        name = f"{kind}.{key}" if isinstance(value, dict) else f"{kind}[]"
        if isinstance(inner, dict) and "name" in inner and kind:
            name += inner["name"]
        yield name.removeprefix("."), value, key
        yield from entries(inner, name)


def mutants() -> Iterator[tuple[str, str, str]]:
    """Yield base and kind of entry, the change, and the text of each broken plan."""
    seen: set[str] = set()
    for base, document in BASES.items():
        for name, change in TEXTS.items() if base == "box" else ():
            yield "the text", name, change(json.dumps(document))
        for number, (kind, _, _) in enumerate(entries(document)):
            if kind.replace("[]pipeline.ops", "") in seen:
                continue
            seen.add(kind.replace("[]pipeline.ops", ""))
            for name, change in CHANGES.items():
                broken = copy.deepcopy(document)
                _, holder, key = list(entries(broken))[number]
                value = holder[key]
                if name in ("more", "fewer") and (value is None or isinstance(value, bool | dict)):
                    continue
                changed = change(value)
                if changed == value and type(changed) is type(value):
                    continue
                if changed is MISSING:
                    del holder[key]
                else:
                    holder[key] = changed
                yield f"{base}: {kind}", name, json.dumps(broken)
