"""The server of the explorer: one page on this machine, and what it asks for.

It listens on the loopback interface only.  Every address starts with a random token, and requests by another host name
are refused, so that neither other users nor pages of other sites, by DNS rebinding or otherwise, get an answer.  The
server is tornado's: one package without dependencies that streams answers and notices when nobody waits for them.
"""

import asyncio
import errno
import hmac
import json
import secrets
import shlex
import socket
from collections.abc import Callable, Mapping
from contextlib import aclosing, suppress
from functools import partial
from importlib.resources import files
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import quote

from tornado.httpserver import HTTPServer
from tornado.iostream import StreamClosedError
from tornado.web import Application, RequestHandler, stream_request_body

from ...errors import ColloptError, UnsupportedError
from ...planners import PLANNERS
from ...schedules import COLLECTIVES
from ...support.validation import shown
from ...topologies import Topology, catalogue
from .answers import FILES, Answer, Case, Scenario
from .worker import Workers

if TYPE_CHECKING:
    from tornado.http1connection import HTTP1Connection

Find = Callable[[tuple[str, ...], Mapping[str, Path]], tuple[Topology, list[str]]]
"""Builds or reads the network that words describe, and says what was assumed for it.

The files are those that were dropped into the page, by name.
"""

LOOPBACK = "127.0.0.1"
MAX_UPLOAD = 2**28  # bytes of a file
MAX_BODY = 2**16  # bytes that are read of those who may not upload
IDLE_SECONDS = 30.0  # for which a connection may wait for the end of a request's head
UPLOAD_SECONDS = 600.0  # for the rest of a request
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; style-src-attr 'unsafe-inline'; connect-src 'self'; "
    "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
TYPES = {".html": "text/html", ".js": "text/javascript", ".css": "text/css"}
QUESTIONS = {"answers": Case.answers, "play": Case.run}
PAGE = {"": "explore.html", **{name: name for name in ("explore.js", "explore.css", "viewer.css", "viewer.js")}}


class Explorer:
    """Serves the page, which shows `first` at first, on a port, or any that is free for 0; `find` makes networks."""

    def __init__(self, find: Find, first: Scenario, *, port: int = 0) -> None:
        self.find, self.first = find, first
        self.token, self.key = secrets.token_urlsafe(24), secrets.token_urlsafe(24)
        try:
            self._socket = socket.create_server((LOOPBACK, port))
        except OSError as error:
            problem = "is taken" if error.errno == errno.EADDRINUSE else f"cannot be used: {error.strerror}"
            raise UnsupportedError(
                f"port {port} {problem}; choose another, or leave it out for one that is free"
            ) from None
        self._socket.setblocking(False)
        self.port = self._socket.getsockname()[1]
        self.hosts = {f"{name}:{self.port}" for name in (LOOPBACK, "localhost")}
        self.uploads: dict[str, bytes] = {}
        self._networks: dict[tuple[str, ...], tuple[Topology, list[str]]] = {}

    @property
    def address(self) -> str:
        """Where the page is."""
        return f"http://{LOOPBACK}:{self.port}/{self.token}/#{self.first.to_query()}"

    @property
    def entrance(self) -> str:
        """Address that leads to the page once: that of a browser's process is seen by other users of this machine."""
        return f"http://{LOOPBACK}:{self.port}/once/{self.key}"

    async def serve(self, ready: Callable[[], object] = lambda: None) -> None:
        """Answer requests until cancelled; call `ready` once the address can be opened."""
        self.workers, self._reading = Workers(), asyncio.Lock()
        routes = [
            (r"/once/([^/]*)", _Once),
            (r"/([^/]*)/(|[a-z]+\.(?:js|css))", _Page),
            (r"/([^/]*)/facts", _Facts),
            (r"/([^/]*)/(answers|play)", _Answers),
            (r"/([^/]*)/file/([^/]+)", _File),
            (r"/([^/]*)/upload/([^/]+)", _Upload),
            (r"/([^/]*).*", _Nothing),
        ]
        handlers = [(pattern, handler, {"explorer": self}) for pattern, handler in routes]
        application = Application(handlers, log_function=lambda _: None)  # addresses hold the token
        server = HTTPServer(
            application, max_body_size=MAX_BODY, idle_connection_timeout=IDLE_SECONDS, body_timeout=UPLOAD_SECONDS
        )
        server.add_socket(self._socket)
        ready()
        try:
            await asyncio.Event().wait()
        finally:
            server.stop()
            self.workers.close()

    async def case(self, query: str) -> Case:
        """Read the state of an address, and its network unless it is known already."""
        scenario = Scenario.from_query(query)
        words = scenario.network
        async with self._reading:  # what readers tell on standard error is that of one network
            while words not in self._networks:
                content = self.uploads.get(words[0])
                network = await asyncio.to_thread(self._find_network, words)
                if self.uploads.get(words[0]) is content:  # and was not replaced meanwhile
                    self._networks[words] = network
            return Case(scenario, *self._networks[words])

    def _find_network(self, words: tuple[str, ...]) -> tuple[Topology, list[str]]:
        """Build or read a network; a dropped file is on the disk only meanwhile."""
        name = words[0]
        if name not in self.uploads:
            return self.find(words, {})
        with TemporaryDirectory() as folder:
            path = Path(folder) / name
            path.write_bytes(self.uploads[name])
            return self.find(words, {name: path})

    def keep(self, name: str, content: bytes) -> None:
        """Keep a file that was dropped into the page; it replaces one of the same name."""
        if Path(name).name != name or name == ".." or name.startswith("-"):
            raise UnsupportedError(
                f"the file is called {shown(name)}; expected a name without folders that does not begin with a dash"
            )
        try:
            with TemporaryDirectory() as folder:
                (Path(folder) / name).touch()
        except (OSError, ValueError) as error:
            raise UnsupportedError(f"the file {shown(name)} cannot be kept: {error}; give it another name") from None
        self.uploads[name] = content
        self._networks = {words: network for words, network in self._networks.items() if words[0] != name}


class _Handler(RequestHandler):
    """Checks who asks, and answers errors with their message."""

    def initialize(self, explorer: Explorer) -> None:
        self.explorer = explorer

    def set_default_headers(self) -> None:
        for name, value in (
            ("Content-Security-Policy", POLICY), ("Referrer-Policy", "no-referrer"), ("Cache-Control", "no-store"),
            ("X-Content-Type-Options", "nosniff"), ("Cross-Origin-Resource-Policy", "same-origin"),
        ):  # fmt: skip
            self.set_header(name, value)
        self.clear_header("Server")

    def prepare(self) -> None:
        """Refuse requests by other host names, and without the token."""
        if self.request.host not in self.explorer.hosts:
            self.refuse(403, "this is no name of the machine that collopt explore runs on")
        elif not hmac.compare_digest(self.path_args[0].encode(), self.secret.encode()):
            self.refuse(403, "this is not the address that collopt explore printed: its token is missing or wrong")

    @property
    def secret(self) -> str:
        """What the address has to begin with."""
        return self.explorer.token

    def refuse(self, status: int, message: str) -> None:
        """Answer with an error."""
        self.set_status(status)
        self.finish({"error": message})

    def write_error(self, status_code: int, **_: Any) -> None:
        self.refuse(status_code, self._reason)


class _Once(_Handler):
    @property
    def secret(self) -> str:
        return self.explorer.key

    def get(self, _: str) -> None:
        """Lead to the page, and nobody else after that."""
        self.explorer.key = secrets.token_urlsafe(24)
        self.redirect(self.explorer.address)


class _Nothing(_Handler):
    def get(self, _: str) -> None:
        """Say that there is nothing."""
        self.refuse(404, "there is nothing at this address")


class _Page(_Handler):
    def get(self, _: str, name: str) -> None:
        """Send a part of the page."""
        if name not in PAGE:
            self.refuse(404, "the page has no such part")
            return
        part = files(__package__) / "templates" / PAGE[name]
        self.set_header("Content-Type", f"{TYPES[Path(PAGE[name]).suffix]}; charset=utf-8")
        self.finish(part.read_bytes())


class _Facts(_Handler):
    def get(self, _: str) -> None:
        """Say what can be chosen."""
        collectives = [collective for collective in COLLECTIVES.values() if not collective.takes_traffic]
        self.finish(
            {
                "collectives": {collective.name: collective.has_one_root for collective in collectives},
                "planners": [
                    {
                        "name": planner.name,
                        "summary": planner.summary,
                        "collectives": [collective.name for collective in collectives if planner.plans(collective)],
                    }
                    for planner in PLANNERS.values()
                ],
                "networks": {entry.name: entry.summary for entry in catalogue()},
                "files": list(FILES),
            }
        )


class _Answers(_Handler):
    async def get(self, _: str, what: str) -> None:
        """Stream what is known of a state, one JSON document on each line."""
        self.set_header("Content-Type", "application/x-ndjson")
        self._task = asyncio.current_task()
        with suppress(StreamClosedError, asyncio.CancelledError):  # nobody waits any more
            try:
                case = await self.explorer.case(self.request.query)
                commands = {name: case.scenario.command(name) for name in ("plan", "explore")}
                await self._send({"state": case.scenario.to_query(), "commands": commands})
                async with aclosing(self.explorer.workers.answers(QUESTIONS[what], case)) as answers:
                    async for answer in answers:
                        await self._send(answer)
            except ColloptError as error:
                await self._send({"error": str(error)})

    async def _send(self, answer: Answer) -> None:
        self.write(json.dumps(answer) + "\n")
        await self.flush()

    def on_connection_close(self) -> None:
        """Stop the work that nobody waits for."""
        if self._task:
            self._task.cancel()


class _File(_Handler):
    async def get(self, _: str, form: str) -> None:
        """Send a file of a state."""
        try:
            case = await self.explorer.case(self.request.query)
            async with aclosing(self.explorer.workers.answers(partial(Case.file, form=form), case)) as answers:
                last = [answer async for answer in answers][-1]
        except ColloptError as error:
            last = {"error": str(error)}
        if "error" in last:
            self.refuse(422, last["error"])
            return
        self.set_header("Content-Type", "application/octet-stream")
        self.set_header("Collopt-Note", quote(last["note"]))
        self.finish(last["file"])


@stream_request_body
class _Upload(_Handler):
    def prepare(self) -> None:
        self._content = bytearray()
        super().prepare()
        if not self._finished:
            cast("HTTP1Connection", self.request.connection).set_max_body_size(MAX_UPLOAD)

    def data_received(self, chunk: bytes) -> None:
        """Take a part of the file."""
        self._content += chunk

    def put(self, _: str, name: str) -> None:
        """Keep a file under its name."""
        try:
            self.explorer.keep(name, bytes(self._content))
        except ColloptError as error:
            self.refuse(422, str(error))
            return
        self.finish({"network": shlex.quote(name)})
