"""A running explorer, and requests to it."""

from __future__ import annotations

import asyncio
import http.client
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from collopt.cli.commands.explore import find
from collopt.report.pages.answers import Scenario
from collopt.report.pages.server import Explorer

__all__ = ["FIRST", "Reply", "exploring", "request"]

FIRST = Scenario(("dgx-a100", "--boxes", "2"))
PATIENCE = 120


class Reply(NamedTuple):
    """What a request got."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def data(self) -> Any:
        """The body, one JSON document."""
        return json.loads(self.body)

    @property
    def answers(self) -> dict[str, Any]:
        """The body, a JSON document on each line, joined."""
        return {name: value for line in self.body.splitlines() for name, value in json.loads(line).items()}


@contextmanager
def exploring(first: Scenario = FIRST) -> Iterator[Explorer]:
    """Run an explorer in a thread."""
    explorer, loop, started = Explorer(find, first), asyncio.new_event_loop(), threading.Event()
    task = loop.create_task(explorer.serve(started.set))

    def run() -> None:
        asyncio.set_event_loop(loop)
        try:
            loop.run_until_complete(task)
        except asyncio.CancelledError:
            pass
        finally:
            loop.run_until_complete(loop.shutdown_default_executor())
            loop.close()

    thread = threading.Thread(target=run)
    thread.start()
    assert started.wait(PATIENCE)
    try:
        yield explorer
    finally:
        loop.call_soon_threadsafe(task.cancel)
        thread.join(PATIENCE)
        assert not thread.is_alive()


def request(explorer: Explorer, path: str, method: str = "GET", *, body: bytes | None = None, **changed: str) -> Reply:
    """Ask for a path below the token; `token` and `host` replace the right ones."""
    connection = http.client.HTTPConnection("127.0.0.1", explorer.port, timeout=PATIENCE)
    headers = {"Host": changed["host"]} if "host" in changed else {}
    token = changed.get("token", explorer.token)
    connection.request(method, f"/{token}/{path}", body, headers)
    response = connection.getresponse()
    reply = Reply(response.status, dict(response.getheaders()), response.read())
    connection.close()
    return reply
