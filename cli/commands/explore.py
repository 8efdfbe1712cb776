"""``collopt explore``: a page in which changes of a network show at once what they do to bounds and plans."""

from __future__ import annotations

import asyncio
import io
import webbrowser
from collections.abc import Mapping
from contextlib import redirect_stderr, suppress
from pathlib import Path
from typing import Any, get_type_hints

import typer

from ...errors import ColloptError, UnsupportedError
from ...schedules import as_bytes
from ...schedules.collective import as_collective
from ...support.packages import check_extra
from ...topologies import Topology
from ..terminal.networks import find_network
from ..terminal.output import note
from ..terminal.parameters import Command, NetworkOptions, check_planners, described, with_fields

EXAMPLE = ("dgx-h100", "--boxes", "2")  # where no network is named


def explore(
    network: NetworkOptions,
    topology: str = "",
    collective: str = "allgather",
    root: str | None = None,
    planner: str = "auto",
    size: str | None = None,
    port: int = 0,
    no_browser: bool = False,
) -> None:
    """Open a page that shows a network, its bound and a plan, and follows changes of the network.

    The page is served on this machine only, until Ctrl-C.
    """
    check_extra("pages of collopt explore", "explore")
    from ...report.pages.answers import Scenario
    from ...report.pages.server import Explorer
    from ...topologies import Scaling

    # Whatever can be refused is refused before; in the page it is a message.
    as_collective(collective)
    check_planners([planner])
    if size is not None:
        as_bytes(size)
    scale, without = map(Scaling.read, network.scale or ()), network.without or ()
    named = network._replace(scale=None, without=None).words()
    words = (topology, *named) if topology else (*EXAMPLE, *named)
    first = Scenario(words, collective, root, size, planner, tuple(scale), tuple(without))
    if topology:
        first.changed(find(words, {})[0])
    explorer = Explorer(find, first, port=port)

    def ready() -> None:
        note(f"collopt: exploring at {explorer.address}")
        note("collopt: this address works on this machine only; Ctrl-C ends it")
        if not no_browser:
            webbrowser.open(explorer.entrance)

    # Processes that plan end with this one, however that ends.
    with suppress(KeyboardInterrupt):
        asyncio.run(explorer.serve(ready))


def find(words: tuple[str, ...], uploads: Mapping[str, Path]) -> tuple[Topology, list[str]]:
    """Build or read a network from words of a command line, dropped files by name; return what was assumed, too."""
    typed: dict[str, Any] = {}

    def keep(**values: Any) -> None:
        typed.update(values)

    kinds = get_type_hints(NetworkOptions).items()
    fields = [(name, described("NetworkOptions", name, kind), None) for name, kind in kinds]
    parser = typer.Typer(add_completion=False, context_settings={"help_option_names": []})
    parser.command(cls=Command)(with_fields(keep, [("topology", described("explore", "topology", str), ""), *fields]))
    path, name, messages = "", "", io.StringIO()
    try:
        parser(list(words), standalone_mode=False)
        name = typed.pop("topology")
        path = str(uploads.get(name, name))
        with redirect_stderr(messages):
            network = find_network(path, NetworkOptions(**typed))
    except typer.TyperException as error:
        message = error.format_message().replace(path or name, name)
        raise UnsupportedError(f"the network {' '.join(words)} cannot be read: {message}") from None
    except ColloptError as error:
        raise type(error)(str(error).replace(path, name)) from None
    lines = messages.getvalue().splitlines()
    return network, [line.removeprefix("collopt: note: ").replace(path, name) for line in lines]
