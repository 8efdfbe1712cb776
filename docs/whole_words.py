"""Keeps options in one line: browsers would break a line behind each of their hyphens, as in ``--`` and ``boxes``.

mkdocs.yml names this file as a hook; code blocks, which are not wrapped, stay as they are.
"""

from __future__ import annotations

import re
from typing import Any

CODE = re.compile(r"(?<!<pre>)(?P<start><code>)(?P<text>[^<]*)(?=</code>)")
OPTION = re.compile(r"(?<!\S)--?[A-Za-z][\w-]*")


def on_page_content(html: str, **_: Any) -> str:
    """Mark the options in inline code; mkdocs calls this with each page."""
    return CODE.sub(lambda code: code["start"] + OPTION.sub(r'<span class="word">\g<0></span>', code["text"]), html)
