"""Scenes: what the viewer of pages draws of a network, a bound or a plan, as plain values for JSON.

A scene is a mapping; lists of one table have one entry per row, and numbers refer to rows from 0.  ``inside`` marks
nodes in the cut of the bound; ``bendX`` and ``bendY`` are control points of curves, null for straight lines; ``share``
is a link's part of the sum of the bound's witness.  Runs have moves by start: ``count`` pieces of equal ``length``, in
``unit`` µs, one after the other.
"""

from collections.abc import Iterator, Sequence
from fractions import Fraction
from functools import cache
from itertools import islice, pairwise, product
from typing import Any, NamedTuple

import numpy as np

from ...planners import Plan
from ...runtime import Simulation
from ...schedules import Bound, as_bytes
from ...schedules.trees.tree_arrays import TreeArrays
from ...support.arrays import IntArray
from ...support.formatting import count_text, percentage_text
from ...topologies import Topology, link_classes
from ...topologies.network.topology import as_topology
from ..layout import box_of_nodes, link_curves, places
from ..tables import (
    BRANCHES,
    HOPS,
    REDUCE_FIRST,
    STEPS,
    link_table,
    step_run,
    tree_hops,
    witness_view,
)

MAX_PARTS = 512
MAX_SEGMENTS = 2**17  # Links of all parts together


class Part(NamedTuple):
    """Links of one tree, step or source."""

    label: str  # What this part is
    ends: list[int]  # Numbers of tail and head, link by link
    ranks: list[int]  # For each link its hop or step, from 1


class Parts(NamedTuple):
    """The parts of a schedule that fit a page."""

    title: str  # Such as "Trees, one at a time"
    word: str  # What one part is called
    rank_word: str  # What `Part.ranks` count, here and in time lines
    explained: str  # What these numbers mean
    shown: list[Part]  # The first ones
    left_out: str  # A sentence on those that are not shown, empty if there are none


def parts(plan: Plan) -> Parts:
    """Divide a plan's schedule into parts for display: its trees, the rows of its loads, or what ranks send."""
    if plan.schedule.view == "steps":
        rows = len(np.atleast_2d(plan.link_loads))
        return _limited(Parts("Steps, one at a time", "Step", "step", STEPS, [], ""), _steps(plan), rows, "steps")
    if plan.schedule.view == "senders":
        about = Parts("Senders, one at a time", "Sender", "step", STEPS, [], "")
        return _limited(about, _senders(plan), plan.topology.num_ranks, "senders")
    schedule = plan.trees
    forests = schedule.forests
    counted = zip(forests, schedule.hops_before, strict=True)
    trees = (part for forest, before in counted for part in _trees(forest, plan, before, len(forests) > 1))
    notes = (len(forests) > 1, REDUCE_FIRST), (bool(schedule.branching_switches), BRANCHES)
    explained = " ".join([HOPS, *(text for applies, text in notes if applies)])
    total = sum(forest.num_trees for forest in forests)
    return _limited(Parts("Trees, one at a time", "Tree", "hop", explained, [], ""), trees, total, "trees")


def _limited(about: Parts, every_part: Iterator[Part], total: int, word: str) -> Parts:
    """Keep the first part, and others within the limits."""
    capacity = MAX_SEGMENTS
    for part in islice(every_part, MAX_PARTS):
        if about.shown and len(part.ranks) > capacity:
            break
        about.shown.append(part)
        capacity -= len(part.ranks)
    left = total - len(about.shown)
    sentence = f"Shown are the first {len(about.shown)} of {total} {word}; {left} are left out." if left else ""
    return about._replace(left_out=sentence)


def _trees(forest: TreeArrays, plan: Plan, before: IntArray, is_twofold: bool) -> Iterator[Part]:
    names, total = plan.topology.nodes, forest.trees_per_root * forest.total_weight
    verb = {"reduce": "reduce tree,", "broadcast": "broadcast tree,"}[forest.direction]
    looped = forest.looped(plan.topology)
    for tree, (root, weight) in enumerate(zip(forest.roots.tolist(), forest.weights.tolist(), strict=True)):
        ends: list[int] = []
        ranks: list[int] = []
        for hop in tree_hops(forest, tree, int(before[tree]), looped):
            for path in (hop.path, hop.path[::-1])[: 1 + hop.looped]:
                for tail, head in pairwise(path):
                    ends += (int(tail), int(head))
                    ranks.append(hop.number)
        share = percentage_text(weight / total)
        hops, first = count_text(max(ranks), "hop"), int(before[tree]) + 1
        last = int(before[tree] + forest.heights[tree])
        if is_twofold:
            hops = f"hop {first}" if first == last else f"hops {first} to {last}"
        yield Part(f"root {names[root]}{f', {verb}' if is_twofold else ','} {share} of all data, {hops}", ends, ranks)


def _steps(plan: Plan) -> Iterator[Part]:
    tails, heads, _, _ = plan.topology.arrays
    for step, loads in enumerate(np.atleast_2d(plan.link_loads), start=1):
        used = np.flatnonzero(loads)
        ends = np.stack([tails[used], heads[used]], axis=1).ravel().tolist()
        yield Part(f"step {step}, {count_text(len(used), 'link')} busy", ends, [step] * len(used))


def _senders(plan: Plan) -> Iterator[Part]:
    schedule: Any = plan.schedule.expanded
    starts = schedule.path_starts
    sources = schedule.path_nodes[starts[:-1]]
    for rank, name in enumerate(plan.topology.compute_nodes):
        own = np.flatnonzero(sources == rank).tolist()
        # A link that several paths share is drawn once, when the first of them passes it.
        first: dict[tuple[int, int], int] = {}
        for path in own:
            nodes = schedule.path_nodes[starts[path] : starts[path + 1]].tolist()
            steps = schedule.steps[starts[path] - path : starts[path + 1] - path - 1].tolist()
            for step, pair in zip(steps, pairwise(nodes), strict=True):
                first[pair] = min(step + 1, first.get(pair, step + 1))
        yield Part(
            f"from {name}, {count_text(len(own), 'path')} over {count_text(len(first), 'link')}",
            [node for pair in first for node in pair], list(first.values()),
        )  # fmt: skip


MAX_DRAWN = 6000  # Links in a scene
MIN_BEND = 1e-3  # Bends by less are none
MAX_PIECES = 2**17  # Pieces of data times hops beyond which nothing is simulated for a page
MAX_MOVES = 2**17  # In all runs of a page
SLICES = 8  # Of data that flows in a run, or fewer where there would be too many pieces
TICKS = 10**6  # In a run

Scene = dict[str, Any]


def scene(viewed: object, sizes: Sequence[int | str] = (), limit: int = MAX_MOVES) -> Scene:
    """Build the scene of a topology, a bound or a plan, whose runs for these sizes have `limit` moves together."""
    if isinstance(viewed, Plan):
        return _of_plan(viewed, sizes, limit)
    if isinstance(viewed, Bound):
        return _with_bound(viewed, np.zeros(viewed.topology.num_links))[0]
    topology = as_topology(viewed)
    return _scene(topology, np.arange(topology.num_links))


def _of_plan(viewed: Plan, sizes: Sequence[int | str], limit: int) -> Scene:
    table, shown_parts = link_table(viewed), parts(viewed)
    drawing, drawn = _with_bound(viewed.bound, table["utilization"].to_numpy())
    drawing["links"] |= {
        "load": table["load"][drawn].round(6).tolist(),
        "use": table["utilization"][drawn].round(6).tolist(),
    }
    number = np.full(viewed.topology.num_links, -1, dtype=np.int64)
    number[drawn] = np.arange(len(drawn))
    return drawing | {
        "parts": _parts_data(shown_parts, viewed.topology, number),
        "runs": [_run(viewed, size, number, len(shown_parts.shown), limit // len(sizes)) for size in sizes],
    }


def _with_bound(bound: Bound, use: Any) -> tuple[Scene, IntArray]:
    """Draw a bound and the busiest links by `use`, float64 (links,); also return which links are drawn."""
    shares, view = shares_of(bound), witness_view(bound)
    drawn = np.sort(np.lexsort((-use, shares == 0))[:MAX_DRAWN])
    drawing = _scene(bound.topology, drawn)
    drawing["links"]["share"] = np.round(shares[drawn], 6).tolist()
    drawing["nodes"]["inside"] = [int(len(view.parts) == 1 and name in view.parts[0]) for name in bound.topology.nodes]
    return drawing | {"counted": view.words}, drawn


def _scene(topology: Topology, drawn: IntArray) -> Scene:
    """Draw so many links of a network, int64 (drawn,), in the order of the network."""
    placed, boxes, curves = places(topology), box_of_nodes(topology), link_curves(topology).iloc[drawn]
    tails, heads = topology.arrays.tails[drawn], topology.arrays.heads[drawn]
    bend_x, bend_y = curves["bend_x"].to_numpy(), curves["bend_y"].to_numpy()
    across, up = bend_x - (placed.x[tails] + placed.x[heads]) / 2, bend_y - (placed.y[tails] + placed.y[heads]) / 2
    bent = (np.hypot(across, up) > MIN_BEND).tolist()
    classes = link_classes(topology)
    kinds = {(link.tail, link.head): number for number, link_class in enumerate(classes) for link in link_class.links}
    links = [topology.link_at(place) for place in drawn.tolist()]
    left = topology.num_links - len(drawn)
    shown = f"Shown are {len(drawn)} of {topology.num_links} links, those of the bound, then the busiest"
    return {
        "title": topology.name,
        "arrangement": placed.arrangement,
        "nodes": {
            "name": list(topology.nodes),
            "label": [name.removeprefix(f"{boxes[name]}/") for name in topology.nodes],
            "box": [boxes[name] for name in topology.nodes],
            "switch": [int(place >= topology.num_ranks) for place in range(len(topology.nodes))],
            "row": list(placed.rows),
            "x": placed.x.round(4).tolist(),
            "y": placed.y.round(4).tolist(),
            "inside": [0] * len(topology.nodes),
        },
        "links": {
            "tail": tails.tolist(),
            "head": heads.tolist(),
            # Most links are straight, and say nothing.
            "bendX": [x if is_bent else None for x, is_bent in zip(bend_x.round(4).tolist(), bent, strict=True)],
            "bendY": [y if is_bent else None for y, is_bent in zip(bend_y.round(4).tolist(), bent, strict=True)],
            "bandwidth": [float(link.bandwidth) for link in links],
            "latency": [float(link.latency) for link in links],
            "kind": [kinds[link[:2]] for link in links],
            "share": [0] * len(links),
            "load": [],
            "use": [],
        },
        "kinds": [link_class.name for link_class in classes],
        "counted": "",
        "leftOut": f"{shown}; {left} are left out." if left else "",
        "parts": None,
        "runs": [],
    }


def shares_of(bound: Bound) -> Any:
    """Part of each link in the sum of the witness, float64 (links,)."""
    counted = witness_view(bound).links
    weights = bound.witness.link_weights(bound.topology, bound.collective)
    parts = [
        weights[link[:2]] * link.bandwidth if link[:2] in counted else Fraction(0) for link in bound.topology.links
    ]
    total = sum(parts) or Fraction(1)
    return np.array([float(part / total) for part in parts])


def _parts_data(shown_parts: Parts, topology: Topology, number: IntArray) -> dict[str, Any]:
    """Replace the links of parts by their numbers in the scene; those that it leaves out are dropped."""
    columns = []
    for part in shown_parts.shown:
        ends = np.array(part.ends, dtype=np.int64).reshape(-1, 2)
        links = number[topology.link_places(ends[:, 0], ends[:, 1])]
        columns.append((links[links >= 0].tolist(), np.array(part.ranks)[links >= 0].tolist()))
    return {
        "title": shown_parts.title,
        "word": shown_parts.word,
        "rankWord": shown_parts.rank_word,
        "explained": shown_parts.explained,
        "leftOut": shown_parts.left_out,
        "label": [part.label for part in shown_parts.shown],
        "links": [links for links, _ in columns],
        "ranks": [ranks for _, ranks in columns],
    }


def _run(plan: Plan, size: int | str, number: IntArray, num_parts: int, limit: int) -> dict[str, Any]:
    """Simulate a plan with as many slices as there is room for, or say why not."""
    pieces, pipelined = plan.schedule.num_hops, plan.schedule.pipelined
    slices = min(SLICES, MAX_PIECES // max(pieces, 1))
    if not slices:
        note = (
            f"No timeline: the plan moves {pieces} pieces, and the limit of this page is {MAX_PIECES}; "
            "collopt.report.step_table returns the table for any plan."
        )
        return {"size": str(size), "done": 0, "note": note}
    simulated = cache(lambda count: step_run(plan, as_bytes(size), count if pipelined else None))
    halved = [max(slices >> times, 1) for times in range(4)]
    run, moves, num_pieces = simulated(slices), dict[str, list[int]](), 0
    # Whose data it is matters more than twice as many slices, but not more than four times.
    for slices, is_whose in [*product(halved[:2], [True]), *product(halved, [False])]:
        run = simulated(slices)
        owners = plan.schedule.part_numbers(run.transfers)[run.transfers.hop_owners]
        moves = _moves(run, number, np.where((owners < num_parts) & is_whose, owners, -1))
        num_pieces = len(moves["link"])
        if num_pieces <= limit:
            break
    slicing = f"Simulated with {count_text(slices, 'slice')}; the predicted times of this page assume full pipelining."
    too_many = f"The {num_pieces} moves are too many for this page." if num_pieces > limit else ""
    return {
        "size": str(size),
        "done": round(run.microseconds, 4),
        "unit": run.microseconds / TICKS,
        "note": " ".join(filter(None, (slicing * pipelined, too_many))),
        **({} if too_many else moves),
    }


def _moves(run: Simulation, number: IntArray, owners: IntArray) -> dict[str, list[int]]:
    """List what enters links when; pieces that follow each other without a pause and are alike are one move."""
    sent, slices = run.transfers, run.slices
    columns = np.stack([number[sent.hop_links], sent.levels[sent.hop_owners] + 1, owners, run.times.ticks])
    link, step, part, length = np.repeat(columns, slices, axis=1)
    order = np.lexsort((run.starts.ravel(), link))
    order = order[link[order] >= 0]
    rows = np.stack([link, step, part, length, run.starts.ravel()])[:, order]
    repeated = (rows[:4, 1:] == rows[:4, :-1]).all(axis=0)
    # Ticks are whole numbers, so that equal times are equal.
    follows = repeated & (rows[4, 1:] == rows[4, :-1] + rows[3, :-1])
    firsts = np.flatnonzero(np.append(True, ~follows))
    count = np.diff(np.append(firsts, len(order)))
    scale = float(run.times.tick) * TICKS / run.microseconds
    link, step, part, length, start = rows[:, firsts]
    start, length = (np.round(times * scale).astype(np.int64) for times in (start, length))
    by_start = np.lexsort((link, start))
    lists = {"link": link, "step": step, "part": part, "start": start, "length": length, "count": count}
    return {name: values[by_start].tolist() for name, values in lists.items()}
