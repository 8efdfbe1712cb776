"""A browser for the tests of pages."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from browser_pages import Browser


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """One for all pages of a module; its tests are skipped where none is installed."""
    running = Browser(tmp_path_factory.mktemp("profile"))
    yield running
    running.close()
