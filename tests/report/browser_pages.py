"""Opens pages in Chromium without a screen, over the pipe of its DevTools protocol, and says what came of it."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

__all__ = ["BROWSER", "Browser", "Page"]

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
PATIENCE = 120
"""Seconds for everything that a page is waited for; machines that run tests can be busy."""
LAUNCHER = (
    "import os, sys; os.dup2(int(sys.argv[1]), 3); os.dup2(int(sys.argv[2]), 4); os.execv(sys.argv[3], sys.argv[3:])"
)


@dataclass
class Page:
    """One page: what it logged, and which addresses it asked for."""

    browser: Browser
    session: str
    console: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def run(self, script: str) -> Any:
        """Evaluate an expression in the page; promises are waited for."""
        found = self.browser.ask(
            "Runtime.evaluate", self.session, expression=script, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def wait_for(self, script: str) -> None:
        """Wait until an expression is true."""
        end = time.monotonic() + PATIENCE
        while not self.run(script):
            assert time.monotonic() < end, f"{script} never came true; the console says {self.console}"
            time.sleep(0.05)

    def press(self, key: str) -> None:
        """Press a key, as its `KeyboardEvent.key`."""
        text = {"text": key} if len(key) == 1 else {}
        for kind in ("keyDown", "keyUp"):
            code = {"Tab": 9, " ": 32}.get(key, 0)
            self.browser.ask(
                "Input.dispatchKeyEvent", self.session, type=kind, key=key, windowsVirtualKeyCode=code, **text
            )

    def point(self, spot: str, *, click: bool = False) -> None:
        """Move the mouse to a spot, an expression for [x, y] in the window, and perhaps click."""
        x, y = self.run(spot)
        for kind in ("mouseMoved", *(("mousePressed", "mouseReleased") if click else ())):
            self.browser.ask(
                "Input.dispatchMouseEvent", self.session, type=kind, x=x, y=y, button="left" if click else "none",
                clickCount=int(click),
            )  # fmt: skip

    def picture(self, path: Path) -> None:
        """Save the whole page as PNG."""
        size = self.browser.ask("Page.getLayoutMetrics", self.session)["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
        taken = self.browser.ask("Page.captureScreenshot", self.session, clip=clip, captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(taken["data"]))


class Browser:
    """A browser that runs until it is closed."""

    def __init__(self, profile: Path) -> None:
        assert BROWSER is not None
        there, ours = os.pipe()
        self._from, back = os.pipe()
        self._to, self._rest, self._last = ours, b"", 0
        self._pages: dict[str, Page] = {}
        self._process = subprocess.Popen(
            [
                sys.executable, "-c", LAUNCHER, str(there), str(back), BROWSER, "--headless=new", "--no-sandbox",
                "--disable-gpu", "--hide-scrollbars", "--no-first-run", "--disable-background-networking",
                "--disable-dev-shm-usage", "--remote-debugging-pipe", f"--user-data-dir={profile}",
            ],
            pass_fds=(there, back), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(there)
        os.close(back)

    def open(self, path: Path, width: int = 1280, height: int = 900, scheme: str = "light", **media: str) -> Page:
        """Open a file and wait until it is drawn; `media` are further features, such as ``reduced_motion``."""
        page = self.visit(path.resolve().as_uri(), width, height, scheme, **media)
        page.wait_for("Boolean(document.documentElement?.dataset.drawn)")
        return page

    def visit(self, address: str, width: int = 1280, height: int = 900, scheme: str = "light", **media: str) -> Page:
        """Open an address."""
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = self._pages[session] = Page(self, session)
        for domain in ("Runtime", "Log", "Network", "Page"):
            self.ask(f"{domain}.enable", session)
        self.ask(
            "Emulation.setDeviceMetricsOverride", session,
            width=width, height=height, deviceScaleFactor=1, mobile=False,
        )  # fmt: skip
        wanted = {"color_scheme": scheme, **media}
        features = [{"name": f"prefers-{name.replace('_', '-')}", "value": value} for name, value in wanted.items()]
        self.ask("Emulation.setEmulatedMedia", session, features=features)
        self.ask("Page.navigate", session, url=address)
        return page

    def ask(self, method: str, session: str | None = None, **parameters: object) -> Any:
        """Send a command, and note what happens until its answer comes."""
        self._last += 1
        message = {"id": self._last, "method": method, "params": parameters}
        if session is not None:
            message["sessionId"] = session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._last:
                assert "error" not in answer, (method, answer["error"])
                return answer["result"]
            self._note(answer)

    def close(self) -> None:
        """End the browser."""
        os.close(self._to)
        os.close(self._from)
        self._process.terminate()
        self._process.wait(PATIENCE)

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            assert select.select([self._from], [], [], PATIENCE)[0], "the browser does not answer"
            received = os.read(self._from, 2**20)
            assert received, "the browser has gone"
            self._rest += received
        message, _, self._rest = self._rest.partition(b"\0")
        read: dict[str, Any] = json.loads(message)
        return read

    def _note(self, event: dict[str, Any]) -> None:
        page, about = self._pages.get(event.get("sessionId", "")), event.get("params", {})
        if page is None:
            return
        if event["method"] == "Runtime.consoleAPICalled":
            page.console.append(f"{about['type']}: {[part.get('value') for part in about['args']]}")
        elif event["method"] == "Runtime.exceptionThrown":
            page.console.append(f"exception: {about['exceptionDetails']}")
        elif event["method"] == "Log.entryAdded":
            page.console.append(f"{about['entry']['level']}: {about['entry']['text']}")
        elif event["method"] == "Network.requestWillBeSent":
            page.requests.append(about["request"]["url"])
