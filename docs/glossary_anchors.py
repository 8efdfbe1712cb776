"""Gives the terms of the glossary ids, so that pages can link to one: ``glossary.md#bottleneck-cut``.

mkdocs.yml names this file as a hook.  In the Markdown itself the attributes would stand in the way of readers.
"""

from __future__ import annotations

import re
from typing import Any

TERM = re.compile(r"^(?P<term>\S.*)\n(?=:   )", re.MULTILINE)


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Add ``{: #id }`` to every term of the glossary's definition list; mkdocs calls this with each page."""
    if page.file.src_uri != "glossary.md":
        return markdown
    return TERM.sub(lambda match: f"{match['term']} {{: #{anchor(match['term'])} }}\n", markdown)


def anchor(term: str) -> str:
    """Return the id of a term: its letters and digits, in lower case, with dashes between words.

    Examples
    --------
    >>> anchor("alpha, α"), anchor("bottleneck cut")
    ('alpha', 'bottleneck-cut')
    """
    return "-".join(re.findall("[a-z0-9_]+", term.lower()))
