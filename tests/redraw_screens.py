"""Takes the pictures of pages in docs/screens again, with Chromium: ``make pictures``."""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

sys.path += [str(Path(__file__).parent / "report")]

from browser_pages import Browser
from explorer_pages import exploring

from collopt.report.pages.answers import Scenario

SCREENS = Path(__file__).parents[1] / "docs" / "screens"
STATE = Scenario(("dgx-h100", "--boxes", "2"), "allreduce", without=("box0/nic3",))

if __name__ == "__main__":
    SCREENS.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, exploring(STATE) as explorer:
        browser = Browser(Path(folder))
        # The intact network first, for what has changed since.
        page = browser.visit(explorer.address.partition("&without")[0], 1280)
        for address in (None, explorer.address):
            if address is not None:
                page.run(f"location.hash = {address.partition('#')[2]!r}")
                page.wait_for("state.without.length === 1")
            page.wait_for("Boolean(document.documentElement?.dataset.shown) && running === null")
            page.wait_for("document.documentElement.dataset.shown === query(state)")
        page.run("pick('box0/nic3')")
        time.sleep(0.5)  # until colors have changed
        page.picture(SCREENS / "explore.png")
        browser.close()
