"""`write_report`: an HTML page about plans of one collective on one network, with the certificate of their bounds."""

import base64
import gzip
import hashlib
import json
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from importlib.metadata import version
from importlib.resources import files
from itertools import chain, count
from typing import Any, NamedTuple

from ...errors import UnsupportedError
from ...planners import Plan
from ...planners.plans.plan import document_text
from ...runtime.health.diagnose import COLUMNS, Diagnosis
from ...schedules import Bound, as_bytes
from ...schedules.bounds.witness import Crossing
from ...support.files import write_whole
from ...support.formatting import count_text, exact, percentage_text, rate_text, times_text
from ...support.packages import check_extra
from ...support.validation import as_flag, as_kind, as_list, as_path, shown
from ..tables import check_rows, is_predictable, link_table, predicted_times, schedule_rows, witness_view
from .outlook import baselines, class_chart, class_rows, failure_chart, rates_chart, sizes_data
from .scene import MAX_MOVES, scene, shares_of

Pair = tuple[str, str]


class Term(NamedTuple):
    """Links with equal weight and bandwidth."""

    links: int  # How many
    bandwidth: Fraction  # GB/s of each
    dual: Fraction  # What each GB/s counts; 1 but for dual values and lengths

    @property
    def total(self) -> Fraction:
        """Contribution of these links to the sum."""
        return self.links * self.bandwidth * self.dual


class Certificate(NamedTuple):
    """The argument of a bound in words and numbers."""

    title: str  # The kind of argument
    reasons: tuple[str, ...]  # Sentences, in the order of the argument
    counted: str  # What the links' sum is called
    terms: tuple[Term, ...]  # Links that are added up, those with most bandwidth first
    weighted: bool  # Whether the terms have dual values other than 1 by their kind
    links: tuple[Pair, ...]  # The same links by name
    divisions: tuple[str, ...]  # From the sums to the bound, as equations

    @property
    def total(self) -> Fraction:
        """Sum of the terms."""
        return sum((term.total for term in self.terms), Fraction(0))


def certificate(bound: Bound) -> Certificate:
    """Return the certificate of a bound."""
    topology, counted = bound.topology, witness_view(bound).links
    links = tuple((link.tail, link.head) for link in topology.links if (link.tail, link.head) in counted)
    crossing = bound.witness.crossing(topology, bound.collective, bound.weights)
    argument = bound.witness.argument(topology, bound.collective, bound.weights, count_text(len(links), "link"))
    duals = dict.fromkeys(links, Fraction(1)) if argument.duals is None else argument.duals
    counts = Counter((dual, topology.link(*pair).bandwidth) for pair, dual in duals.items() if dual)
    terms = tuple(Term(counts[dual, bandwidth], bandwidth, dual) for dual, bandwidth in sorted(counts, reverse=True))
    weighted = argument.duals is not None
    return Certificate(*argument[:3], terms, weighted, links, _divisions(bound, crossing))


def _divisions(bound: Bound, crossing: Crossing) -> tuple[str, ...]:
    """Derive the bounds on time and bandwidth from the sums."""
    divisors = (
        str(number) if number.denominator == 1 else f"({number})" for number in (crossing.bandwidth, bound.inverse_rate)
    )
    by_bandwidth, by_time = divisors
    return (
        f"time ≥ {crossing.amount} / {by_bandwidth} = {exact(bound.inverse_rate, 'ns')} per byte of {_unit(bound)}",
        f"algbw ≤ {bound.total_weight} / {by_time} = {exact(bound.algbw, 'GB/s')}",
    )


def _unit(bound: Bound) -> str:
    """Describe one unit of data."""
    if bound.collective.in_pairs:
        return "one unit of traffic" if bound.weights else "the data from one rank to another"
    if bound.collective.has_one_root:
        return "the root's data"
    return "a shard of weight 1" if bound.weights else "a shard"


DEFAULT_SIZES = ("1M", "64M", "1G")
MAX_PLANS = 12
MAX_PAGE = 10**6  # Bytes of a page up to which plan files are embedded
PLANS_MARKER = b"<!-- plan files -->\n"
MAX_SIZES = 12
MAX_TERMS, MAX_LINK_NAMES = 100, 400  # Kinds of links in a sum, and links by name, that are written out

Plans = Plan | Iterable[Plan] | Mapping[str, Plan]


def write_report(
    plans: Plans,
    path: str | os.PathLike[str],
    *,
    sizes: Iterable[int | str] | None = None,
    title: str | None = None,
    failures: bool = False,
    diagnosis: Diagnosis | None = None,
) -> None:
    """Write a page about plans atomically; it loads nothing from the network.

    Raises `CertificateError` if a plan does not prove what it claims: the page states nothing that was not checked;
    `UnsupportedError` if there are no plans, or they are not for the same purpose, or a size or the path is not
    understood.

    Parameters
    ----------
    plans : Plan, iterable of Plan, or mapping of str to Plan
        One, or listed of one topology, collective and shards to compare.  The names of a mapping stand on the page,
        otherwise those of the planners.
    path : str or path
        Such as ``"report.html"``; a file there before is replaced.
    sizes : iterable of int or str, optional
        Bytes in all, to show time lines of and compare times for; 1M, 64M and 1G by default.
    title : str, optional
        Of the page; collective and network by default.
    failures : bool, optional
        Also plan for every failure of a link, NIC, GPU and switch, as `survive` does, and show what each costs.
    diagnosis : Diagnosis, optional
        Of a log, by `collopt.diagnose` with ``topology=plan.topology``, to show beside the plans.
    """
    target, with_failures = as_path(path), as_flag(failures, "failures")
    write_whole(target, report_page(plans, sizes=sizes, title=title, failures=with_failures, diagnosis=diagnosis))


def report_page(
    plans: Plans,
    *,
    sizes: Iterable[int | str] | None = None,
    title: str | None = None,
    failures: bool = False,
    diagnosis: Diagnosis | None = None,
) -> bytes:
    """Return the page that `write_report` writes, as HTML in UTF-8."""
    check_extra("reports", "report")
    named, amounts = _named(plans), _sizes(sizes)
    if title is not None and not isinstance(title, str):
        raise UnsupportedError(f"the title is {shown(title)}; expected text")
    for plan in named.values():
        plan.verify()
    plan = next(iter(named.values()))
    if diagnosis is not None:
        _check_measured(as_kind(diagnosis, Diagnosis, "the diagnosis", hint=", of collopt.diagnose"), plan)
    known_plans = baselines(named)
    scenes = [scene(drawn, [text for text, _ in amounts], MAX_MOVES // len(named)) for drawn in named.values()]
    charts = [rates_chart(named, known_plans), *([failure_chart(plan)] if failures else []), class_chart(plan)]
    context = {
        "title": title or f"{plan.collective} on {plan.topology.name}",
        "subtitle": f"{plan.topology.num_ranks} ranks, {len(plan.topology.switch_nodes)} switches, "
        f"{plan.topology.num_links} links; "
        f"{f'planned by {plan.planner}' if len(named) == 1 else f'{len(named)} plans'}; verified",
        "entries": [plan_entry(name, drawn, amounts, MAX_LINKS // len(named)) for name, drawn in named.items()],
        "sizes": [text for text, _ in amounts],
        "first_size": len(amounts) // 2,
        "collective": str(plan.collective),
        "charts": [chart for chart in charts if chart.bars],
        "classes": class_rows(plan, link_table(plan).assign(share=shares_of(plan.bound))),
        "link_columns": LINK_COLUMNS,
        "measured": diagnosis,
        "size_columns": COLUMNS,
        "exact": exact,
        "most_terms": MAX_TERMS,
        "most_names": MAX_LINK_NAMES,
        "version": version("collopt"),
    }
    entries = [(name, drawn, number) for number, (name, drawn) in enumerate(named.items())]
    entries += [(name, drawn, -1) for name, drawn in known_plans.items()]
    data: dict[str, Any] = {
        "plans": scenes,
        "others": [
            {"name": name, "number": number, "load": link_table(drawn)["load"].round(6).tolist()}
            for name, drawn, number in entries
        ],
        "curves": sizes_data({**named, **known_plans}),
    }
    texts = [document_text(drawn.to_json()).encode("utf-8", "replace") for drawn in named.values()]
    data |= {"network": plan.topology.digest, "files": [len(text) for text in texts]}
    # Names can hold lone surrogates, which UTF-8 has no bytes for.
    page = _rendered(context, data).encode("utf-8", "replace")
    for number, text in enumerate(texts):
        with_plan = page.replace(PLANS_MARKER, _packed_script(text, f"plan-{number}") + PLANS_MARKER)
        page = with_plan if len(with_plan) <= MAX_PAGE else page
    return page.replace(PLANS_MARKER, b"")


def _packed_script(text: bytes, name: str) -> bytes:
    """Embed a text, compressed."""
    packed = base64.b64encode(gzip.compress(text, mtime=0))
    return b'<script type="application/gzip" id="%s">%s</script>\n' % (name.encode(), packed)


def _named(plans: Any) -> dict[str, Plan]:
    """Name the plans, and check that they are for the same purpose."""
    if isinstance(plans, Mapping):
        named = {str(name): plan for name, plan in plans.items()}
        listed: Sequence[Any] = list(named.values())
    else:
        listed = [plans] if isinstance(plans, Plan) else as_list(plans, "the plans", high=MAX_PLANS)
        named = {}
    if not listed or len(listed) > MAX_PLANS:
        raise UnsupportedError(f"there are {len(listed)} plans; expected 1 to {MAX_PLANS}")
    for plan in listed:
        as_kind(plan, Plan, "the plan", hint=", such as collopt.plan returns")
        if _purpose(plan) != _purpose(listed[0]):
            raise UnsupportedError(
                f"one plan is for {listed[0].collective} on {listed[0].topology}, another for {plan.collective} on "
                f"{plan.topology}, or for other links or shards; write a report for each"
            )
    return named or dict(zip(_names(listed), listed, strict=True))


def _check_measured(diagnosis: Diagnosis, plan: Plan) -> None:
    """Refuse a log of another network, another collective, or other shards, than the plans are for."""
    if diagnosis.topology.digest != plan.topology.digest:
        raise UnsupportedError(
            f"{diagnosis.source} was compared with {diagnosis.topology.name}, and the plan is on {plan.topology.name} "
            "or has other links; give collopt.diagnose the plan's topology"
        )
    purposes = {(run.collective, run.expectation.bound.weights) for run in diagnosis.runs}
    if (plan.collective, plan.bound.weights) not in purposes:
        names = ", ".join(dict.fromkeys(run.collective.name for run in diagnosis.runs))
        raise UnsupportedError(
            f"{diagnosis.source} measures {names} of equal shards, and the plan is for {plan.collective}"
            f"{' of others' if plan.bound.weights else ''}; give a plan for what was measured"
        )


def _purpose(plan: Plan) -> tuple[object, ...]:
    return plan.topology.digest, plan.collective, plan.bound.weights


def _names(plans: Sequence[Plan]) -> list[str]:
    """Name plans by their planners, options and, if these are equal, a number."""
    names: list[str] = []
    for plan in plans:
        name = plan.planner
        if [other.planner for other in plans].count(name) > 1 and plan.options:
            name = f"{name}, {_pairs(plan.options)}"
        candidates = chain([name], (f"{name} ({number})" for number in count(2)))
        names.append(next(candidate for candidate in candidates if candidate not in names))
    return names


def _sizes(sizes: Iterable[int | str] | None) -> list[tuple[str, int]]:
    if isinstance(sizes, (str, int)):
        raise UnsupportedError(f"sizes is {shown(sizes)}; expected a list such as ['1M', '1G']")
    texts = as_list(DEFAULT_SIZES if sizes is None else sizes, "the sizes", high=MAX_SIZES)
    if not texts:
        raise UnsupportedError("sizes is empty; expected one such as '64M', or leave it out")
    sizes_by_bytes: dict[int, str] = {}
    for size in texts:
        sizes_by_bytes.setdefault(as_bytes(size), str(size))
    return [(text, size) for size, text in sizes_by_bytes.items()]


STYLES, SCRIPTS = ("report.css", "viewer.css"), ("viewer.js", "charts.js", "proof.js", "report.js")


def _rendered(context: Mapping[str, Any], data: Mapping[str, Any]) -> str:
    """Render the template; text from plans is escaped."""
    from jinja2 import Environment, StrictUndefined

    templates = files(__package__) / "templates"
    css, script, page = (
        "".join((templates / name).read_text(encoding="utf-8") for name in names)
        for names in (STYLES, SCRIPTS, ("report.html.j2",))
    )
    # A script that got in with a name would not run: only the one with this digest does.
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    packed = _packed_script(json.dumps(data, separators=(",", ":")).encode(), "report-data").decode()
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    figures = {"policy": policy, "css": css, "script": script, "files": packed + PLANS_MARKER.decode()}
    return str(environment.from_string(page).render(context, **figures))


LINK_COLUMNS = (
    ("from", False), ("to", False), ("GB/s", True), ("latency, µs", True), ("load", True), ("utilization", True),
    ("in the bound", False),
)  # fmt: skip
"""Headings of the table of links, and whether numbers stand below them."""
MAX_LINKS = 2000  # Rows of these tables together


def plan_entry(name: str, plan: Plan, sizes: Sequence[tuple[str, int]], most_links: int) -> dict[str, Any]:
    """Describe one plan."""
    times = ["–"] * len(sizes)
    if is_predictable(plan):
        amounts = [size for _, size in sizes]
        ranges = (plan.time_range(size) for size in amounts)
        times = list(map(times_text, predicted_times(plan, amounts), ranges))
    kind, count, note = _schedule_tile(plan)
    return {
        "name": name,
        "optimal": plan.gap == 0,
        "verdict": _verdict(plan),
        "tiles": _tiles(plan),
        "proof": certificate(plan.bound),
        "bounds": [
            {
                "scope": limit.scope,
                "rate": rate_text(limit.algbw),
                "missed": percentage_text(1 - plan.algbw / limit.algbw) if plan.algbw != limit.algbw else "0",
                "reason": limit.witness.reason(plan.topology, plan.collective),
            }
            for limit in filter(None, (plan.bound, plan.scoped_bound))
        ],
        "ends": plan.topology.node_index,
        "checks": list(check_rows(plan, "stored with the plan").items()),
        "links": _links(plan, most_links),
        "provenance": _provenance(plan),
        "algbw_number": f"{float(plan.algbw):.2f}",
        "missed": percentage_text(plan.gap) if plan.gap else "0",
        "times": times,
        "size_text": f"{count} {kind}" + (f", {note}" if note else ""),
    }


def _verdict(plan: Plan) -> tuple[str, str]:
    """State the plan's quality, and the reason."""
    reason, scoped = plan.bound.witness.reason(plan.topology, plan.collective), plan.scoped_bound
    if plan.gap == 0:
        return "Optimal.", f"The plan attains the bound, which holds for all schedules: {reason}."
    missed = f"is {percentage_text(plan.scoped_gap)} below" if plan.scoped_gap else "attains"
    remark = f" The plan {missed} the bound of {scoped.scope}, {rate_text(scoped.algbw)}." if scoped else ""
    return (
        f"{percentage_text(plan.gap)} below the bound",
        f"that holds for every schedule: {reason}. The optimum lies between the plan and the bound.{remark}",
    )


def _tiles(plan: Plan) -> list[tuple[str, str, str]]:
    """Key figures: name, value, and exact value or composition."""
    scoped = plan.scoped_bound
    narrower = [(f"bound of {scoped.scope}", *_rate_and_exact(scoped.algbw))] if scoped else []
    return [
        ("algbw", *_rate_and_exact(plan.algbw)),
        ("busbw", *_rate_and_exact(plan.busbw)),
        ("bound on algbw", *_rate_and_exact(plan.bound.algbw)),
        *narrower,
        ("optimality gap", *((percentage_text(plan.gap), f"exactly {plan.gap}") if plan.gap else ("0", "optimal"))),
        ("ranks", str(plan.topology.num_ranks), f"{plan.topology.num_links} links"),
        ("planner", plan.planner, ""),
        _schedule_tile(plan),
    ]


def _schedule_tile(plan: Plan) -> tuple[str, str, str]:
    if plan.schedule.num_trees:
        return "trees", str(plan.schedule.num_trees), plan.heights.text.partition(",")[0]
    if plan.schedule.num_steps:
        return "steps", str(plan.num_steps), ""
    return "size", plan.schedule.size_text, ""


def _rate_and_exact(value: Fraction) -> tuple[str, str]:
    text, _, exact = rate_text(value).partition(" (")
    return text, f"exactly {exact.rstrip(')')}" if exact else ""


def _links(plan: Plan, limit: int) -> dict[str, Any]:
    """Rows of the table of links, the busiest first."""
    table = link_table(plan).sort_values(["utilization", "in_cut"], ascending=False, kind="stable")
    rows, number = list[dict[str, Any]](), plan.topology.node_index
    for place, row in zip(table.index[:limit], table.head(limit).to_dict("records"), strict=True):
        link = plan.topology.link_at(place)
        texts = {"tail": link.tail, "head": link.head}
        texts |= {name: exact(getattr(link, name)).partition(" (")[0] for name in ("bandwidth", "latency")}
        share = percentage_text(row["utilization"]) if row["utilization"] else "0 %"
        order = tuple(row[name] for name in ("bandwidth_gbps", "latency_us", "load", "utilization"))
        about = {
            "load": f"{row['load']:.4f}",
            "ends": " ".join(str(number[texts[end]]) for end in ("tail", "head")),
            "utilization": share,
            "in_cut": bool(row["in_cut"]),
            "order": order,
        }
        rows.append(texts | about)
    left = len(table) - len(rows)
    return {
        "rows": rows,
        "caption": "Load is the share of all data that the link carries; utilization is the share of the time for "
        "which it is busy. Sorted by utilization.",
        "left_out": f"{left} more links, with no higher utilization, are not listed." if left else "",
    }


def _provenance(plan: Plan) -> list[tuple[str, str]]:
    """Provenance of the plan."""
    return [
        ("network", plan.topology.name),
        ("digest", plan.topology.digest),
        ("planner", plan.planner),
        ("options", _pairs(plan.options) or "none"),
        ("recorded", _pairs(plan.provenance) or "none: plan files store only what can be verified"),
        *schedule_rows(plan).items(),
    ]


def _pairs(values: Mapping[str, object]) -> str:
    return ", ".join(f"{key} = {value}" for key, value in values.items())
