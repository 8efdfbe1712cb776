"""``collopt explore``: a page in which changes of a network show at once what they do to bounds and plans."""

from __future__ import annotations

import asyncio
import inspect
import io
import webbrowser
from collections.abc import Mapping
from contextlib import redirect_stderr, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from ...errors import ColloptError, UnsupportedError
from ...schedules import as_bytes
from ...schedules.traffic.collective import as_collective
from ...support.packages import check_extra
from ..arguments.network_options import NetworkOptions
from ..arguments.parameters import Command, complete_collective, complete_topology, count_option, option, planner_option
from ..arguments.requests import check_planners
from ..arguments.shared import RootOption
from ..terminal.output import note

if TYPE_CHECKING:
    from ...topologies import Topology

TopologyArgument = Annotated[
    str,
    typer.Argument(
        metavar="[TOPOLOGY]",
        help="Name from `collopt topologies`, or path of a topology file; others can be chosen in the page.",
        autocompletion=complete_topology,
    ),
]
CollectiveArgument = Annotated[
    str,
    typer.Argument(metavar="[COLLECTIVE]", help="Such as allreduce.", autocompletion=complete_collective),
]
PlannerOption = Annotated[str, planner_option("Planner, as for `collopt plan`.")]
SizeOption = Annotated[str | None, option("--size SIZE", "Total size in bytes, 64K or 1G (default: endless data).")]
PortOption = Annotated[int, count_option("--port N", "Port to listen on (default: any that is free).", 0, 65535)]
BrowserOption = Annotated[bool, option("--no-browser", "Only print the address, and open no browser.")]
EXAMPLE = ("dgx-h100", "--boxes", "2")  # where no network is named


def explore(
    described: NetworkOptions,
    topology: TopologyArgument = "",
    collective: CollectiveArgument = "allgather",
    root: RootOption = None,
    planner: PlannerOption = "auto",
    size: SizeOption = None,
    port: PortOption = 0,
    no_browser: BrowserOption = False,
) -> None:
    """Open a page that shows a network, its bound and a plan, and what changes of the network do to them.

    The page is served on this machine only, until Ctrl-C.
    """
    check_extra("pages of collopt explore", "explore")
    from ...report.explorer.scenario import Scenario
    from ...report.explorer.server import Explorer
    from ...topologies import Scaling

    # Whatever can be refused is refused before; in the page it is a message.
    as_collective(collective)
    check_planners([planner])
    if size is not None:
        as_bytes(size)
    scale, without = map(Scaling.read, described.scale or ()), described.without or ()
    named = described._replace(scale=None, without=None).words()
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

    with suppress(KeyboardInterrupt):
        asyncio.run(explorer.serve(ready))


def find(words: tuple[str, ...], uploads: Mapping[str, Path]) -> tuple[Topology, list[str]]:
    """Build or read the network that words of a command line describe, and return what had to be assumed for it.

    Dropped files are found by their names.
    """
    from ..arguments.networks import find_network

    given: dict[str, Any] = {}

    def keep(**values: Any) -> None:
        given.update(values)

    kinds = get_type_hints(NetworkOptions, include_extras=True)
    options = [(name, kinds[name], None) for name in NetworkOptions._fields]
    keep.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=kind, default=default)
            for name, kind, default in [("topology", TopologyArgument, ""), *options]
        ]
    )
    parser = typer.Typer(add_completion=False, context_settings={"help_option_names": []})
    parser.command(cls=Command)(keep)
    try:
        parser(list(words), standalone_mode=False)
    except typer.TyperException as error:
        raise UnsupportedError(f"the network {' '.join(words)} cannot be read: {error.format_message()}") from None
    name = given.pop("topology")
    path, said = str(uploads.get(name, name)), io.StringIO()
    try:
        with redirect_stderr(said):
            network = find_network(path, NetworkOptions(**given))
    except ColloptError as error:
        raise type(error)(str(error).replace(path, name)) from None
    return network, [line.removeprefix("collopt: note: ").replace(path, name) for line in said.getvalue().splitlines()]
