"""The notebooks of the documentation: executed, and made into pages; and how pages show options."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import nbformat
import pytest

from doc_pages import ROOT
from notebooks import NOTEBOOKS, executed, texts


def hook(name: str = "notebook_pages") -> ModuleType:
    """A hook of mkdocs, which is no part of a package."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    spec.loader.exec_module(module := importlib.util.module_from_spec(spec))
    return module


@pytest.mark.slow
@pytest.mark.parametrize("file", NOTEBOOKS, ids=lambda file: file.stem)
def test_notebook_says_what_is_stored_in_it(file: Path, tmp_path: Path) -> None:
    """Every cell runs, and shows the same text; `make notebooks` stores what it shows now."""
    stored = nbformat.read(file, as_version=4)
    assert texts(executed(file, tmp_path)) == texts(stored)
    assert any(len(shown) > 0 for shown in texts(stored))


@pytest.mark.parametrize("file", NOTEBOOKS, ids=lambda file: file.stem)
def test_notebook_is_small_and_shows_its_pictures_offline(file: Path) -> None:
    """Without errors, and without anything that would be loaded from elsewhere."""
    assert file.stat().st_size < 500_000
    page = hook().page_of(nbformat.read(file, as_version=4))
    assert "<script" not in page
    assert 'src="http' not in page
    assert page.startswith("# ")


def test_pages_of_notebooks_have_text_code_and_what_was_shown() -> None:
    """In this order; blank lines would end a block of HTML."""
    cells = [
        {"cell_type": "markdown", "source": ["# Title\n", "Text."]},
        {
            "cell_type": "code",
            "source": ["1 + 1"],
            "outputs": [
                {"data": {"text/plain": ["2"]}},
                {"text": ["said\n"]},
                {"data": {"text/html": ['<table border="1" class="dataframe">\n\n</table>'], "text/plain": ["a"]}},
            ],
        },
    ]
    assert hook().page_of({"cells": cells}) == (
        "# Title\nText.\n\n```python\n1 + 1\n```\n\n```text\n2\n```\n\n```text\nsaid\n```\n\n"
        '<div class="output"><table>\n</table></div>\n'
    )


def test_links_to_notebooks_lead_to_their_pages() -> None:
    """Other links stay."""
    text = "[a](notebooks/first-plan.ipynb) [b](../notebooks/x.ipynb#c) [d](first-plan.ipynb) [e](plans.ipynb.txt)"
    assert hook().on_page_markdown(text) == (
        "[a](notebooks/first-plan.md) [b](../notebooks/x.md#c) [d](first-plan.md) [e](plans.ipynb.txt)"
    )


def test_options_in_sentences_are_kept_in_one_line() -> None:
    """Other words, and blocks of code, stay as they are."""
    page = "<code>a --no-plan x-y -o f</code> --z <pre><code>b --c</code></pre>"
    marked = '<code>a <span class="word">--no-plan</span> x-y <span class="word">-o</span> f</code>'
    assert hook("whole_words").on_page_content(page) == page.replace(page[: page.index(" --z")], marked)
