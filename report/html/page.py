"""`write_report`: a page about one plan, or several for the same purpose, in one file that needs nothing else."""

from __future__ import annotations

import base64
import hashlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import version
from importlib.resources import files
from typing import Any

from ...errors import UnsupportedError
from ...planners import Plan
from ...schedules import as_bytes
from ...support.packages import check_extra
from ...support.validation import as_list, as_path, shown
from ...support.writing import write_whole
from .entries import LINK_COLUMNS, plan_entry
from .parts import parts
from .plots import network_data, plan_data, sizes_data

DEFAULT_SIZES = ("1M", "64M", "1G")
MOST_PLANS = 12
MOST_SIZES = 12
MOST_TERMS, MOST_NAMES = 100, 400
"""Kinds of links in a sum, and links by name, that are written out."""

Plans = Plan | Iterable[Plan] | Mapping[str, Plan]


def write_report(
    plans: Plans,
    path: str | os.PathLike[str],
    *,
    sizes: Iterable[int | str] | None = None,
    title: str | None = None,
) -> None:
    """Write a page about plans, whole or not at all; it opens in a browser without a network.

    Parameters
    ----------
    plans : Plan, iterable of Plan, or mapping of str to Plan
        One, or several of one topology, collective and shards to compare.  The names of a mapping stand on the page,
        otherwise those of the planners.
    path : str or path
        Such as ``"report.html"``; a file there before is replaced.
    sizes : iterable of int or str, optional
        Bytes in all, to show time lines of and compare times for; 1M, 64M and 1G by default.
    title : str, optional
        Of the page; collective and network by default.

    Raises
    ------
    CertificateError
        If a plan does not prove what it claims: the page states nothing that was not checked.
    UnsupportedError
        If there are no plans, or they are not for the same purpose, or a size or the path is not understood.
    """
    target = as_path(path)
    write_whole(target, report_page(plans, sizes=sizes, title=title))


def report_page(plans: Plans, *, sizes: Iterable[int | str] | None = None, title: str | None = None) -> bytes:
    """Return the page that `write_report` writes, as HTML in UTF-8; parameters and errors are the same."""
    check_extra("reports", "report")
    named, amounts = _named(plans), _sizes(sizes)
    if title is not None and not isinstance(title, str):
        raise UnsupportedError(f"the title is {shown(title)}; expected text")
    for plan in named.values():
        plan.verify()
    plan = next(iter(named.values()))
    taken = parts(plan)
    context = {
        "title": title or f"{plan.collective} on {plan.topology.name}",
        "subtitle": _subtitle(named),
        "entries": [plan_entry(name, each, amounts) for name, each in named.items()],
        "sizes": [text for text, _ in amounts],
        "first_size": len(amounts) // 2,
        "collective": str(plan.collective),
        "frames_title": taken.title if len(named) == 1 else "Schedule by parts",
        "frame_word": taken.word if len(named) == 1 else "Part",
        "network_caption": "Links are colored by utilization; those that the bound counts have a wide border.",
        "link_columns": LINK_COLUMNS,
        "most_terms": MOST_TERMS,
        "most_names": MOST_NAMES,
        "version": version("collopt"),
    }
    data = {
        "network": network_data(plan.topology),
        "plans": [plan_data(each, amounts) for each in named.values()],
        "curves": sizes_data(named),
    }
    # Names can hold lone surrogates, which UTF-8 has no bytes for.
    return _rendered(context, data).encode("utf-8", "replace")


def _named(plans: Any) -> dict[str, Plan]:
    """Name the plans, and see to it that they are about the same."""
    if isinstance(plans, Mapping):
        named = {str(name): plan for name, plan in plans.items()}
        several: Sequence[Any] = list(named.values())
    else:
        several = [plans] if isinstance(plans, Plan) else as_list(plans, "the plans", most=MOST_PLANS)
        named = {}
    if not several or len(several) > MOST_PLANS:
        raise UnsupportedError(f"there are {len(several)} plans; expected 1 to {MOST_PLANS}")
    for plan in several:
        if not isinstance(plan, Plan):
            raise UnsupportedError(f"the plan is {shown(plan)}; expected a Plan, such as collopt.plan returns")
        _check_same(several[0], plan)
    return named or dict(zip(_names(several), several, strict=True))


def _check_same(first: Plan, other: Plan) -> None:
    if other.topology.digest != first.topology.digest:
        raise UnsupportedError(
            f"one plan is for {first.topology!r}, another for {other.topology!r} with other links; expected plans of "
            "one topology: write a report for each"
        )
    if (other.collective, other.bound.weights) != (first.collective, first.bound.weights):
        raise UnsupportedError(
            f"one plan is for {first.collective}, another for {other.collective} or for other shards; expected plans "
            "of "
            "one collective: write a report for each"
        )


def _names(plans: Sequence[Plan]) -> list[str]:
    """Call plans by their planners, with their options and, where these do not differ either, a number."""
    names: list[str] = []
    for plan in plans:
        name = plan.planner
        if [other.planner for other in plans].count(name) > 1 and plan.options:
            name = f"{name}, {', '.join(f'{key} = {value}' for key, value in plan.options.items())}"
        number = 1
        wanted = name
        while name in names:
            number += 1
            name = f"{wanted} ({number})"
        names.append(name)
    return names


def _sizes(sizes: Iterable[int | str] | None) -> list[tuple[str, int]]:
    if isinstance(sizes, (str, int)):
        raise UnsupportedError(f"sizes is {shown(sizes)}; expected a list such as ['1M', '1G']")
    wanted = as_list(DEFAULT_SIZES if sizes is None else sizes, "the sizes", most=MOST_SIZES)
    if not wanted:
        raise UnsupportedError("sizes is empty; expected one such as '64M', or leave it out")
    found: dict[int, str] = {}
    for size in wanted:
        found.setdefault(as_bytes(size), str(size))
    return [(text, size) for size, text in found.items()]


def _subtitle(named: Mapping[str, Plan]) -> str:
    plan = next(iter(named.values()))
    who = f"planned by {plan.planner}" if len(named) == 1 else f"{len(named)} plans"
    topology = plan.topology
    counts = f"{topology.num_ranks} ranks, {len(topology.switch_nodes)} switches, {len(topology.links)} links"
    return f"{counts}; {who}; verified"


def _rendered(context: Mapping[str, Any], data: Mapping[str, Any]) -> str:
    """Fill the template in; what comes from plans is escaped, what is our own goes in as it is."""
    from jinja2 import Environment, StrictUndefined
    from markupsafe import Markup
    from plotly.offline import get_plotlyjs

    templates = files(__package__) / "templates"
    css, script, page = (
        (templates / name).read_text(encoding="utf-8") for name in ("report.css", "report.js", "report.html.j2")
    )
    plotly = get_plotlyjs()
    # A script that got in with a name would not run: only those with these digests do.
    policy = (
        f"default-src 'none'; script-src {_digest(plotly)} {_digest(script)}; style-src 'unsafe-inline'; "
        "img-src data: blob:; base-uri 'none'; form-action 'none'"
    )
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    return str(
        environment.from_string(page).render(
            context,
            policy=policy,
            css=Markup(css),  # noqa: S704 - our own, or escaped below
            plotly=Markup(plotly),  # noqa: S704 - our own, or escaped below
            script=Markup(script),  # noqa: S704 - our own, or escaped below
            data=Markup(_json_for_script(data)),  # noqa: S704 - our own, or escaped below
        )
    )


def _digest(script: str) -> str:
    """Name a script as content security policies do."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"


def _json_for_script(data: object) -> str:
    """JSON that cannot end the script element which it stands in."""
    text = json.dumps(data, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
