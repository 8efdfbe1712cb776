"""Makes pages of the notebooks in docs/notebooks, with the outputs that are stored in them.

mkdocs.yml names this file as a hook.  Other pages link the notebooks themselves, which code hosts show, too.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

FOLDER = "notebooks"
TABLE = '<table border="1" class="dataframe">'
LINK = re.compile(rf"(\]\((?:\.\./)*(?:{FOLDER}/)?[\w-]+)\.ipynb(?=[)#])")


def on_files(files: Any, config: Any) -> Any:
    """Add a page for each notebook; mkdocs calls this with all files."""
    from mkdocs.structure.files import File

    for file in list(files):
        if file.src_uri.startswith(f"{FOLDER}/") and file.src_uri.endswith(".ipynb"):
            notebook = json.loads(Path(file.abs_src_path).read_text(encoding="utf-8"))
            files.append(File.generated(config, file.src_uri.replace(".ipynb", ".md"), content=page_of(notebook)))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Let links to notebooks lead to their pages; mkdocs calls this with each page."""
    return LINK.sub(r"\1.md", markdown)


def page_of(notebook: dict[str, Any]) -> str:
    """Return the Markdown of a notebook: text as it is, code as blocks, and below it what it printed or showed."""
    parts = []
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
        else:
            parts += [f"```python\n{source}\n```", *map(_shown, cell["outputs"])]
    return "\n\n".join(parts) + "\n"


def _shown(output: dict[str, Any]) -> str:
    data = output.get("data", {})
    if "text/html" in data:
        # Blank lines would end a block of HTML; the site has its own style for tables.
        page = re.sub(r"\n\s*\n", "\n", "".join(data["text/html"])).replace(TABLE, "<table>")
        return f'<div class="output">{page}</div>'
    return f"```text\n{''.join(output.get('text') or data['text/plain']).rstrip()}\n```"
