"""Check the proof in a plan file of collopt: ``python3 collopt_check.py PLAN.json``.

This file needs Python 3.9 or newer and nothing else.  It is written from the page of the format alone,
docs/reference/plan-json.md, whose names and whose order it follows: file, topology, bound, schedule, result.  Each
step prints a line.  The status is 0 if the plan is right, else 1, and then the line of the step that fails says why.

Nothing is assumed of a plan: what is not checked here is not used here.  All arithmetic is exact.  What Python itself
refuses, such as a node that is not there, is wrong as well.
"""

from __future__ import annotations

import base64
import hashlib
import heapq
import json
import re
import struct
import sys
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator
from fractions import Fraction
from itertools import combinations
from math import gcd, inf, lcm, prod
from pathlib import Path
from typing import Any

Pair = tuple[int, int]

BROADCAST, REDUCE, ALLREDUCE, PAIRS = ("broadcast",), ("reduce",), ("reduce", "broadcast"), ()
PHASES: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("allgather", "broadcast", "demands"), BROADCAST),
    **dict.fromkeys(("reduce_scatter", "reduce"), REDUCE),
    **dict.fromkeys(("all_to_all", "all_to_allv"), PAIRS),
    "allreduce": ALLREDUCE,
}


def require(holds: object, problem: str) -> None:
    """Refuse the plan unless something holds."""
    if not holds:
        raise ValueError(problem)


def fields(document: Any, required: str, optional: str = "") -> list[Any]:
    """Return the required fields of an object that has no others but optional ones."""
    names = required.split()
    require(set(names) <= set(document) <= {*names, *optional.split()}, f"expected the fields {required} {optional}")
    return [document[name] for name in names]


def integers(values: Any, low: float, high: float, what: str) -> Any:
    """Return a list of whole numbers from `low` to below `high`; true and false are none."""
    fits = isinstance(values, list) and all(type(value) is int and low <= value < high for value in values)
    require(fits, f"{what} are not whole numbers from {low} to below {high}")
    return values


def fraction(text: Any, zero: str = "") -> Fraction:
    """Read a fraction; it is positive, or is `zero`."""
    require(re.fullmatch("[1-9][0-9]*(/[1-9][0-9]*)?", text) or text == zero, f"{text!r} is no fraction")
    return Fraction(text)


def array(document: Any, count: int) -> list[int]:
    """Read an array as text with `count` entries."""
    kind, lag, text = fields(document, "type lag zlib")
    letters = {"uint8": "B", "int8": "b", "uint16": "H", "int16": "h", "uint32": "I", "int32": "i", "int64": "q"}
    form = f"<{count}{letters[kind]}"
    data = zlib.decompressobj().decompress(base64.b64decode(text, validate=True), struct.calcsize(form) + 1)
    numbers = list(struct.unpack(form, data))
    integers([lag], 0, 513, "lags")
    for place in range(lag, count if lag else 0):
        numbers[place] += numbers[place - lag]
    return numbers


def joined(members: Iterable[Any], pairs: Iterable[tuple[Any, Any]]) -> dict[Any, Any]:
    """Return for each member one that stands for its class, where both of a pair are of one class."""
    above = {member: member for member in members}

    def top(member: Any) -> Any:
        while above[member] != member:
            above[member] = member = above[above[member]]
        return member

    for one, other in pairs:
        above[top(one)] = top(other)
    return {member: top(member) for member in above}


# Topology


class Network:
    """Nodes by number, bandwidths and latencies of links by both ends, and the abilities of switches."""

    def __init__(self, document: Any) -> None:
        names = "format version name compute switches links"
        form, version, _, compute, entries, links = fields(document, names, "costs devices")
        require(form == "collopt-topology" and version in {1, 2}, "the topology is of another format or version")
        self.entries = [{"name": entry} if isinstance(entry, str) else entry for entry in entries]
        abilities = ("multicast", "aggregation", "loopback", "relay")
        for entry in self.entries:
            fields(entry, "name", " ".join([*abilities, "group operators types"]))
            fits = {type(entry[ability]) for ability in {*abilities} & {*entry}} <= {bool}
            require(fits, "an ability is neither true nor false")
            integers([] if entry.get("group") is None else [entry["group"]], 2, inf, "groups")
        self.nodes = compute + [entry["name"] for entry in self.entries]
        self.ranks, self.size = len(compute), len(self.nodes)
        self.number = {name: number for number, name in enumerate(self.nodes)}
        require(len(self.number) == self.size, "two nodes have one name")
        self.multicast, self.aggregation, self.loopback, self.relays = (
            {self.number[entry["name"]] for entry in self.entries if entry.get(ability)} for ability in abilities
        )
        self.branching = {"broadcast": self.multicast, "reduce": self.aggregation}
        self.group: dict[int, Any] = {self.number[entry["name"]]: entry.get("group") or inf for entry in self.entries}
        if isinstance(links, dict):
            count, tails, heads, kinds, rates = fields(links, "count tails heads kinds rates")
            ends = zip(*(integers(array(side, count), 0, self.size, "ends") for side in (tails, heads)))
            which = integers(array(kinds, count), 0, len(rates), "kinds")
            rows = [(*pair, *rates[kind]) for pair, kind in zip(ends, which)]
        else:
            rows = [(self.number[tail], self.number[head], *rate) for tail, head, *rate in links]
        rates = {(speed, delay): (fraction(str(speed)), fraction(str(delay), "0")) for _, _, speed, delay in rows}
        self.links: dict[Pair, tuple[Fraction, Fraction]] = {row[:2]: rates[row[2:]] for row in rows}
        require(len(self.links) == len(rows), "two links have the same ends")
        require(all(tail != head for tail, head in self.links), "a link leads from a node to itself")
        self.neighbors = {*self.links, *(ends[::-1] for ends in self.links)}
        neighbors = Counter(node for node, _ in self.neighbors)
        single = any(neighbors[switch] < 2 for switch in self.multicast | self.aggregation)
        require(not single, "a switch has abilities, and but one neighbor")

    def digest(self) -> str:
        """Return the SHA-256 of the network."""
        names, limits = self.nodes, []
        for entry in self.entries:
            operators, types = (sorted(set(entry.get(name, []))) for name in ("operators", "types"))
            limit = [entry.get("loopback", False), entry.get("group"), operators, types, entry.get("relay", False)]
            limits += [[entry["name"], *limit]] if limit != [False, None, [], [], False] else []
        rows = sorted([names[tail], names[head], *map(str, rate)] for (tail, head), rate in self.links.items())
        abilities = [sorted(names[switch] for switch in group) for group in (self.multicast, self.aggregation)]
        parts = [names[: self.ranks], names[self.ranks :], rows, *abilities, *([sorted(limits)] if limits else [])]
        return hashlib.sha256(json.dumps(parts, separators=(",", ":")).encode()).hexdigest()

    def numbers(self, names: Any) -> set[int]:
        """Return the numbers of nodes."""
        require(isinstance(names, list), "a set of nodes is no list")
        return {self.number[name] for name in names}

    def width(self, times: Any) -> Any:
        """Return the bandwidth of all links, each as often as `times` says of its ends."""
        return sum(count * rate[0] for ends, rate in self.links.items() if (count := times(*ends)))


# Bounds: a witness shows an amount A of data, a bandwidth B that it needs, and whether it is about all schedules


class Problem:
    """What a bound is about: a network, the phases of a collective, and shards by rank, or traffic row by row."""

    def __init__(self, plan: Any, weights: Any, network: Network) -> None:
        self.network, self.ranks, self.phases = network, network.ranks, PHASES[plan["collective"]]
        rooted, ranks = plan["collective"] in {"broadcast", "reduce"}, self.ranks
        sizes = {"allgather": {0, ranks}, "reduce_scatter": {0, ranks}, "all_to_allv": {ranks**2}}
        fits = len(integers(weights, 0, inf, "weights")) in sizes.get(plan["collective"], {ranks if rooted else 0})
        require(fits, "weights are not those of the collective")
        require(not rooted or sum(weight > 0 for weight in weights) == 1, "there is not one root")
        demands = plan["collective"] == "demands"
        self.groups = read_items(plan["schedule"]["items"], network) if demands else []
        own = [weight for weight, _, _ in self.groups] if demands else [1] * (ranks if self.phases else ranks**2)
        self.weights = weights or own
        self.total = Fraction(sum(self.weights), 1 if self.phases else ranks)


Group = tuple[int, set[int], set[int]]  # weight, sources and destinations
Shown = tuple[Any, Any, bool]


def read_items(items: Any, network: Network) -> list[Group]:
    """Return the groups of the items of demands."""
    rows = [fields(item, "name size sources destinations", "layer") for item in items]
    require(len({row[0] for row in rows}) == len(rows), "two items have one name")
    require(all(row[2] and network.numbers([*row[2], *row[3]]) for row in rows), "an item has no source")
    layers = integers([item.get("layer", 0) for item in items], 0, inf, "layers")
    moved = [(layer, *row[1:]) for layer, row in zip(layers, rows) if {*row[3]} - {*row[2]}]
    groups: dict[Any, Fraction] = {}
    for layer, size, *names in sorted(moved, key=lambda row: row[0]):
        sources, destinations = (frozenset(network.numbers(side)) for side in names)
        require(max(sources | destinations) < network.ranks, "an item begins or ends at a switch")
        key = (layer, sources, destinations - sources)
        groups[key] = groups.get(key, Fraction(0)) + fraction(size)
    sizes = [fraction(size) for _, size, _, _ in moved]
    scale = lcm(*(size.denominator for size in sizes))
    unit = Fraction(gcd(*(int(size * scale) for size in sizes)), scale)
    return [(int(size / unit), {*sources}, {*destinations}) for (_, sources, destinations), size in groups.items()]


def show_cut(names: Any, problem: Problem) -> Shown:
    """Count the data that has to leave a set of nodes, or to enter it."""
    network, weights = problem.network, problem.weights
    inside = network.numbers(names)
    sides = [[rank for rank in range(problem.ranks) if (rank in inside) == side] for side in (True, False)]
    require(all(sides), "the cut has no rank inside, or none outside")
    if problem.groups:
        amount = sum(weight for weight, sources, goals in problem.groups if sources <= inside and goals - inside)
    elif problem.phases:
        amount = problem.ranks if problem.phases == ALLREDUCE else sum(weights[rank] for rank in sides[0])
    else:
        amount = sum(weights[source * problem.ranks + target] for source in sides[0] for target in sides[1])
    return amount, border(inside, network, entering=problem.phases == REDUCE), True


def border(inside: set[int], network: Network, *, entering: bool) -> Any:
    """Return the bandwidth of the links that leave a set of nodes, or enter it."""
    return network.width(lambda tail, head: (tail in inside) != (head in inside) and (head in inside) == entering)


def show_rank_cuts(cuts: Any, problem: Problem) -> Shown:
    """Count what some rank has to send, or to receive where switches copy."""
    network, sets = problem.network, [problem.network.numbers(names) for names in cuts]
    require(not network.aggregation, "cuts around ranks show nothing where a switch aggregates")
    alone = [[node for node in inside if node < problem.ranks] for inside in sets]
    require(alone == [[rank] for rank in range(problem.ranks)], "there is no cut around some rank alone")
    width = max(border(inside, network, entering=bool(network.multicast)) for inside in sets)
    return 2 * (problem.ranks - 1), width, True


def read_parts(parts: Any, network: Network) -> tuple[int, list[int], dict[int, int]]:
    """Return the number of parts with ranks, the part of each node, -1 for idle ones, and components of the idle."""
    sets = [network.numbers(names) for names in parts]
    require(sorted(node for part in sets for node in part) == [*range(network.size)], "a node is not in one part")
    parties = [part for part in sets if min(part, default=inf) < network.ranks]
    numbers = {node: number for number, part in enumerate(parties) for node in part}
    part = [numbers.get(node, -1) for node in range(network.size)]
    inner = (ends for ends in network.links if part[ends[0]] == part[ends[1]] == -1)
    return len(parties), part, joined((node for node in range(network.size) if part[node] < 0), inner)


def show_partition(parts: Any, problem: Problem) -> Shown:
    """Count arrivals at parts with ranks."""
    count, part, component = read_parts(parts, problem.network)
    require(problem.network.aggregation.isdisjoint(component), "an idle switch aggregates")
    width = problem.network.width(lambda tail, head: part[head] >= 0 and part[tail] != part[head])
    return 2 * (count - 1) * problem.ranks, width, True


def show_tree_partition(parts: Any, problem: Problem) -> Shown:
    """Count what trees carry across the borders of parts with ranks, less what idle switches save."""
    network = problem.network
    count, part, component = read_parts(parts, network)
    near = {(component[here], part[there]) for here, there in network.neighbors if part[here] < 0 <= part[there]}
    crossings = 4 * (count - 1)
    for branching in (network.multicast, network.aggregation):
        for label in {component[switch] for switch in branching & component.keys()}:
            adjacent = {number for other, number in near if other == label}
            plain = any(component.get(switch) == label for switch in branching - network.loopback)
            hidden = any(part[switch] in adjacent for switch in branching)
            crossings -= max(0, len(adjacent) - (2 if plain or hidden else 3))
    width = network.width(lambda tail, head: part[tail] != part[head] and (part[tail] >= 0) + (part[head] >= 0))
    return crossings * problem.ranks, width, False


def show_loopback_partition(parts: Any, problem: Problem) -> Shown:
    """Count the same, in all schedules, where idle switches loop back."""
    network = problem.network
    _, part, component = read_parts(parts, network)
    idle = (network.multicast | network.aggregation) & component.keys()
    require(idle <= network.loopback, "an idle switch branches, and does not loop back")
    labels = {component[switch] for switch in idle}
    require(len(labels) == len(idle), "two idle switches of one component branch")
    foreign = network.relays | {node for node in range(problem.ranks, network.size) if part[node] >= 0}
    adjacent = any(component.get(here) in labels and there in foreign for here, there in network.neighbors)
    require(not adjacent, "a relay, or a switch of a part with ranks, is next to a component that branches")
    return (*show_tree_partition(parts, problem)[:2], True)


def read_duals(lists: Any, network: Network, *weights: Fraction) -> tuple[int, dict[Pair, int], Any, list[Any]]:
    """Read lists of rows of both ends and a dual, in whole units of 1 / scale: a scale changes A and B alike.

    Returns the scale, the dual of every link by the first list, their bandwidth times duals, and the other lists.
    """
    number = network.number
    rows = [[(number[tail], number[head], fraction(dual, "0")) for tail, head, dual in own] for own in lists]
    scale = lcm(*(dual.denominator for own in rows for _, _, dual in own), *(value.denominator for value in weights))
    duals = [{(tail, head): int(dual * scale) for tail, head, dual in own} for own in rows]
    require([*map(len, duals)] == [*map(len, rows)], "two duals have the same ends")
    require(duals[0].keys() <= network.links.keys(), "a dual is not that of a link")
    lengths = {ends: duals[0].get(ends, 0) for ends in network.links}
    return scale, lengths, network.width(lambda *ends: lengths[ends]), duals[1:]


def distances(lengths: dict[Pair, Any], starts: Iterable[int], stops: Any = ()) -> Iterator[tuple[int, dict[int, Any]]]:
    """Yield each start with the least length of a way to each node in reach, where no way goes on past `stops`."""
    edges: dict[int, list[Pair]] = {}
    for (tail, head), length in lengths.items():
        edges.setdefault(tail, []).append((head, length))
    for start in starts:
        nearest: dict[int, Any] = {}
        waiting = [(0, start)]
        while waiting:
            total, node = heapq.heappop(waiting)
            if node not in nearest:
                nearest[node] = total
                for head, length in edges.get(node, []) if node == start or node not in stops else []:
                    heapq.heappush(waiting, (total + length, head))
        yield start, nearest


def hops(lengths: dict[Pair, Any], ends: Any, stops: Any) -> dict[Pair, Any]:
    """Return the least length of ways between ends, past nodes that are no stops."""
    rows = distances(lengths, ends, stops)
    return {(start, end): nearest[end] for start, nearest in rows for end in ends if end in nearest and end != start}


def show_lengths(rows: Any, problem: Problem) -> Shown:
    """Count traffic times distance."""
    _, lengths, width, _ = read_duals([rows], problem.network)
    amount, ranks = 0, problem.ranks
    for source, nearest in distances(lengths, range(ranks)):
        row = problem.weights[source * ranks : (source + 1) * ranks]
        amount += sum(traffic * nearest[target] for target, traffic in enumerate(row) if traffic)
    return amount, width, True


def show_uses(uses: list[list[Any]], problem: Problem) -> Any:
    """Count the use of the shards in one phase, or of all data at the best root; infinite where none is reached."""
    if problem.phases == ALLREDUCE:
        return problem.ranks * min(map(sum, zip(*uses)))
    return sum(weight * use for weight, use in zip(problem.weights, *uses) if weight)


def show_prices(document: Any, problem: Problem) -> Shown:
    """Count what data uses over hops, at duals that add up to no more than those of the links of a hop."""
    network, ranks = problem.network, range(problem.ranks)
    links, into, out_of, names = fields(document, "links into out_of relays")
    relays = network.numbers(names)
    require(relays.isdisjoint(ranks), "a relay is a rank")
    require(relays >= network.multicast | network.aggregation, "a switch with abilities is no relay")
    _, lengths, width, rows_of_ranks = read_duals([links, *into, *out_of], network)
    limits = hops(lengths, {*ranks, *relays}, {*ranks, *relays})
    uses = []
    for phase, rows in (("reduce", rows_of_ranks[len(into) :]), ("broadcast", rows_of_ranks[: len(into)])):
        require(len(rows) in {0, problem.ranks}, "there are not as many lists of duals as ranks")
        sums: Counter[Pair] = Counter()
        for duals in rows:
            sums.update(duals)
        require(all(total <= limits[hop] for hop, total in sums.items()), "duals exceed those of a hop's links")
        if phase in problem.phases:
            # The ways of a broadcast are looked for from their ends.
            turn = slice(None, None, -1 if phase == "broadcast" else 1)
            turned: list[Any] = [{hop[turn]: duals.get(hop, 0) for hop in limits} for duals in rows]
            nearest = [row for rank in ranks for _, row in distances(turned[rank], [rank])]
            uses.append([sum(row.get(root, inf) for row in nearest) for root in ranks])
    return show_uses(uses, problem), width, problem.phases != ALLREDUCE


def show_item_cuts(document: Any, problem: Problem) -> Shown:
    """Count cuts that items have to enter, which weigh no more than the links of any hop into them."""
    network = problem.network
    links, rows = fields(document, "links cuts")
    cuts = [[(fraction(weight), network.numbers(names)) for weight, names in row] for row in rows]
    scale, lengths, width, _ = read_duals([links], network, *(weight for row in cuts for weight, _ in row))
    ends = {*range(problem.ranks), *network.multicast}
    limits = hops(lengths, ends, ends)
    require(len(cuts) == len(problem.groups), "there are not as many lists of cuts as groups of items")
    amount = Fraction(0)
    for (size, sources, destinations), row in zip(problem.groups, cuts):
        for weight, inside in row:
            require(not inside - ends, "a cut holds a switch that does not multicast")
            require(inside.isdisjoint(sources) and inside & destinations, "a cut holds a source, or no destination")
            amount += size * weight * scale
        for (tail, head), limit in limits.items():
            entered = sum(weight for weight, inside in row if head in inside and tail not in inside)
            require(entered * scale <= limit, "cuts that a hop enters weigh more than its links")
    return amount, width, True


def show_tree_dual(rows: Any, problem: Problem) -> Shown:
    """Count what the cheapest trees use."""
    require(problem.ranks < 13, "there are more than 12 ranks")
    _, lengths, width, _ = read_duals([rows], problem.network)
    return show_uses([tree_costs(lengths, problem.network, phase) for phase in problem.phases], problem), width, False


def tree_costs(lengths: dict[Pair, int], network: Network, phase: str) -> list[float]:
    """Return the cost of the cheapest tree from each rank to all (Dreyfus and Wagner, Networks 1, 1971)."""
    ranks = range(network.ranks)
    out = {ends if phase == "broadcast" else ends[::-1]: length for ends, length in lengths.items()}
    both = {ends: length + out.get(ends[::-1], inf) for ends, length in out.items()}
    vertices = [*ranks, *network.branching[phase]]
    edges = {
        (start, end): cost
        for loops, lengths in ((False, out), (True, both))
        for (start, end), cost in hops(lengths, vertices, ranks).items()
        if loops == (start in ranks and end in network.loopback)
    }
    ways = dict(distances(edges, vertices))
    # The cheapest tree that covers a set of ranks is a way to one of them, or to where it falls into two.
    cheapest: list[dict[int, float]] = [dict.fromkeys(vertices, 0)]
    for covered in range(1, 2**network.ranks):
        below = {rank: cheapest[covered - (1 << rank)][rank] for rank in ranks if covered >> rank & 1}
        part = remainder = covered & (covered - 1)
        while part:
            for vertex in vertices:
                split = cheapest[part][vertex] + cheapest[covered - part][vertex]
                below[vertex] = min(split, below.get(vertex, inf))
            part = (part - 1) & remainder
        cheapest.append({v: min(cost + below.get(end, inf) for end, cost in ways[v].items()) for v in vertices})
    return [cheapest[-1][rank] for rank in ranks]


WITNESSES: dict[str, tuple[Any, Any]] = {  # and the collectives that they bound, by their phases, besides demands
    "cut": (show_cut, {BROADCAST, REDUCE, ALLREDUCE, PAIRS}),
    "rank_cuts": (show_rank_cuts, {ALLREDUCE}),
    "partition": (show_partition, {ALLREDUCE}),
    "tree_partition": (show_tree_partition, {ALLREDUCE}),
    "loopback_partition": (show_loopback_partition, {ALLREDUCE}),
    "prices": (show_prices, {BROADCAST, REDUCE, ALLREDUCE}),
    "lengths": (show_lengths, {PAIRS}),
    "tree_dual": (show_tree_dual, {BROADCAST, REDUCE, ALLREDUCE}),
    "item_cuts": (show_item_cuts, set()),
}


def check_bound(plan: Any, field: str, network: Network) -> tuple[Problem, Fraction, str]:
    """Check that the witness proves the rate of a bound, and return what it is about, and its algorithm bandwidth."""
    [stated] = fields(plan[field], "inverse_rate", " ".join(["weights", *WITNESSES]))
    problem = Problem(plan, plan[field].get("weights", []), network)
    [name] = set(plan[field]) & set(WITNESSES)
    show, phases = WITNESSES[name]
    fits = name in {"cut", "item_cuts"} if problem.groups else problem.phases in phases
    require(fits, f"the witness {name} does not bound this collective")
    amount, bandwidth, all_schedules = show(plan[field][name], problem)
    rate = amount / bandwidth  # The stated one is positive, and not infinite.
    require(rate == fraction(stated), f"the {name} shows 1/x >= {rate}, and the {field} claims {stated}")
    require(all_schedules == (field == "bound"), f"the {field} is about {'all' if all_schedules else 'some'} schedules")
    return problem, problem.total / rate, f"{name}: {amount} over {bandwidth}, so 1/x >= {rate}"


# Schedules: phases, loads of links in rows, the unit of each row, shards or traffic, and all data

Schedule = tuple[tuple[str, ...], list[Any], list[int], list[int], Any]


def path_links(paths: Any, network: Network, direction: str, stops: Any, low: int = 0) -> list[list[Pair]]:
    """Check paths, which end at `stops` and pass nodes from `low` on, and return the ends of the links of each."""
    links = []
    for path in paths:
        integers(path, 0, inf, "nodes")
        require(len(path) > 1 and len({*path}) == len(path), f"path {path} is too short, or passes a node twice")
        ends_fit = path[0] in stops and path[-1] in stops
        require(ends_fit and min(path[1:-1], default=inf) >= low, f"path {path} ends or passes where none may")
        way = path if direction == "broadcast" else path[::-1]
        links.append([*zip(way, way[1:])])
        require(all(ends in network.links for ends in links[-1]), f"path {path} follows a link that is not there")
    return links


def check_forest(schedule: Any, network: Network) -> Schedule:
    """Check trees that are all written down."""
    names = "kind direction trees_per_root root_weights paths trees"
    _, direction, count, weights, paths, trees = fields(schedule, names, "switches")
    every = {*range(network.ranks)}
    groups = [(weight, {rank}, every) for rank, weight in enumerate(weights)]
    trees = [(*tree, root) for root, *tree in trees]
    fits = len(integers(weights, 0, inf, "root_weights")) == network.ranks
    require(fits, "there is not one of root_weights for each rank")
    row = tree_loads(trees, groups, count, paths, direction, schedule.get("switches", []), network)
    return (direction,), [row], [count], weights, sum(weights)


def check_demand_forest(schedule: Any, network: Network) -> Schedule:
    """Check trees that lead from sources of items to their destinations."""
    _, count, items, paths, rows, switches = fields(schedule, "kind trees_per_root items paths trees switches")
    groups = read_items(items, network)
    require(all(root in groups[group][1] for root, _, _, group in rows), "a root is no source")
    trees = [tree for _, *tree in rows]
    row = tree_loads(trees, groups, count, paths, "broadcast", switches, network)
    weights = [weight for weight, _, _ in groups]
    return BROADCAST, [row], [count], weights, sum(weights)


def tree_loads(trees: Any, groups: Any, count: Any, paths: Any, direction: str, switches: Any, network: Network) -> Any:
    """Check that trees carry the data of each group from its sources to its destinations, and return their copies."""
    ranks = network.ranks
    vertices = [*range(ranks), *switches]
    require(len({*switches}) == len(switches), "a switch is listed twice")
    require({*switches} <= network.branching[direction], "trees branch at a switch that cannot")
    links = path_links(paths, network, direction, {*vertices}, ranks)
    copies, looped, totals = [0] * len(paths), [0] * len(paths), [0] * len(groups)
    for weight, routes, group in trees:
        integers([weight, count], 1, inf, "weights of trees")
        require(len(integers(routes, -1, len(paths), "routes")) == len(vertices), "a tree has too few routes")
        totals[integers([group], 0, len(groups), "roots and groups")[0]] += weight
        _, sources, destinations = groups[group]
        # Every vertex but the sources has at most one above it, so those that sources reach form trees.
        below: dict[int, list[int]] = {}
        for vertex, route in zip(vertices, routes):
            if route >= 0:
                require(paths[route][-1] == vertex and vertex not in sources, "a route ends elsewhere, or at a source")
                below.setdefault(paths[route][0], []).append(vertex)
                copies[route] += weight
        reached = [*sources]
        for vertex in reached:
            reached += below.get(vertex, [])
        require(len(reached) == len(sources) + sum(map(len, below.values())), "a tree does not begin at a source")
        require(destinations <= {*reached}, "a tree does not reach a rank")
        for switch, route in zip(switches, routes[ranks:]):
            heads = below.get(switch, [])
            require(len(heads) < 2 or len(heads) < network.group[switch], "a tree joins more than a switch's group")
            if switch in network.loopback and (heads[1:] or heads >= [ranks]):  # two vertices, or a switch
                looped[route] += weight if paths[route][0] < ranks else 0
    require(totals == [count * group[0] for group in groups], "trees do not carry all data, or too much")
    loads: Counter[Pair] = Counter()
    for way, number, back in zip(links, copies, looped):
        for ends in way:
            loads[ends] += number
            loads[ends[::-1]] += back
    return loads  # Those of links that are not there have no bandwidth.


def check_symmetric_forest(schedule: Any, network: Network) -> Schedule:
    """Check trees of representatives, and permutations whose products take them to those of all others."""
    counts = "num_ranks num_nodes num_generators num_trees num_paths num_path_nodes trees_per_root"
    names = f"kind direction {counts} generators roots weights routes path_lengths path_nodes"
    _, direction, ranks, size, generators, trees, paths, nodes, count, *texts = fields(schedule, names)
    sizes = (generators * size, trees, trees, trees * ranks, paths, nodes)
    numbers = [array(text, length) for text, length in zip(texts, sizes)]
    images = [numbers[0][start : start + size] for start in range(0, generators * size, size)]
    routes = [numbers[3][start : start + ranks] for start in range(0, trees * ranks, ranks)]
    require(sum(numbers[4]) == nodes, "path_lengths do not add up to num_path_nodes")
    following, own, every = iter(numbers[5]), {*numbers[1]}, {*range(ranks)}
    lists = [[next(following) for _ in range(length)] for length in numbers[4]]
    groups = [(int(rank in own), {rank}, every) for rank in range(ranks)]
    loads = tree_loads(zip(numbers[2], routes, numbers[1]), groups, count, lists, direction, [], network)
    products = prod(order_of(image, network) for image in images)
    for one, other in combinations(images, 2):
        require([one[node] for node in other] == [other[node] for node in one], "two generators do not commute")
    # Each orbit of ranks has as many members as there are products, and one representative.
    orbit = joined(range(size), (pair for image in images for pair in enumerate(image)))
    members = Counter(orbit[rank] for rank in range(ranks))
    require({*members.values()} == {products}, "an orbit of ranks has not as many members as there are products")
    require(Counter(orbit[root] for root in own) == dict.fromkeys(members, 1), "an orbit has not one representative")
    # Links of an orbit carry the same.
    moves = ((ends, (image[ends[0]], image[ends[1]])) for image in images for ends in network.links)
    orbit = joined(network.links, moves)
    members = Counter(orbit.values())
    sums: Counter[Pair] = Counter()
    for ends in network.links:
        sums[orbit[ends]] += loads[ends]
    row = {ends: sums[label] * products // members[label] for ends, label in orbit.items()}
    return (direction,), [row], [count], [1] * ranks, ranks


def order_of(image: list[int], network: Network) -> int:
    """Check that a permutation is a symmetry of the network, and return after how many times all nodes are back."""
    require(sorted(image) == [*range(network.size)], "a generator is no permutation")
    fits = all(network.links[image[tail], image[head]] == rate for (tail, head), rate in network.links.items())
    require(fits, "a generator takes a link to one of another bandwidth or latency")
    cycle = joined(range(network.size), enumerate(image))
    order = lcm(*Counter(cycle.values()).values())
    require(order > 1, "a generator moves nothing")
    return order


def read_sends(schedule: Any, network: Network, names: str, limit: int, direction: str) -> tuple[int, int, Any, Any]:
    """Check each send by itself; return chunks, pieces between points where intervals end, sends by step, and rows."""
    *_, ranks, chunks, paths, steps, seconds, lower, upper, routes = fields(schedule, f"{names} lower upper routes")
    require(ranks == network.ranks, "the schedule is for another number of ranks")
    links = path_links(paths, network, direction, range(ranks), ranks)
    columns, limits = (steps, seconds, lower, upper, routes), (inf, limit, inf, inf, len(paths))
    lengths = {len(integers(column, 0, limit, "sends")) for column, limit in zip(columns, limits)}
    require(len(lengths) == 1, "the columns of sends are not of one length")
    place = {point: place for place, point in enumerate(sorted({0, chunks, *lower, *upper}))}
    rows: list[Any] = [Counter() for _ in {*steps}]  # Where nothing happens in a step, there is none for the last.
    by_step: list[list[Any]] = [[] for _ in rows]
    for step, second, low, high, route in zip(*columns):
        require(low < high, "a send carries no chunk")
        by_step[step].append((paths[route][0], paths[route][-1], second, place[low], place[high]))
        for ends in links[route]:
            rows[step][ends] += high - low
    return integers([chunks, *lower], 0, inf, "chunks")[0], place[chunks], by_step, rows


def check_steps(schedule: Any, network: Network) -> Schedule:
    """Check sends of chunks of shards; a set of pieces of a shard is a number with a bit for each."""
    direction, ranks = schedule["direction"], range(network.ranks)
    names = "kind direction num_ranks chunks_per_shard paths steps sources"
    chunks, pieces, by_step, rows = read_sends(schedule, network, names, network.ranks, direction)
    complete = (1 << pieces) - 1
    holdings = [[complete if rank == source else 0 for source in ranks] for rank in ranks]
    for step, sends in enumerate(by_step):
        before = [holdings[sender][source] for sender, _, source, _, _ in sends]
        for (_, receiver, source, low, high), available in zip(sends, before):
            sent = (1 << high) - (1 << low)
            require(sent & available == sent, f"in step {step} a rank sends what it does not have")
            twice = sent & holdings[receiver][source]
            require(direction == "broadcast" or not twice, f"in step {step} a rank is brought a chunk twice")
            holdings[receiver][source] |= sent
    require(all(pieces == complete for row in holdings for pieces in row), "a rank lacks a chunk in the end")
    return (direction,), rows, [chunks] * len(rows), [1] * network.ranks, network.ranks


def check_exchange(schedule: Any, network: Network) -> Schedule:
    """Check sums of vectors of ranks; the set of vectors in a sum is a number with a bit for each."""
    names = "kind num_ranks chunks paths steps adds"
    chunks, pieces, by_step, rows = read_sends(schedule, network, names, 2, "broadcast")
    sums = {(rank, piece): 1 << rank for rank in range(network.ranks) for piece in range(pieces)}
    for step, sends in enumerate(by_step):
        arrivals: dict[Pair, list[Pair]] = {}
        for sender, receiver, adds, low, high in sends:
            for piece in range(low, high):
                arrivals.setdefault((receiver, piece), []).append((sums[sender, piece], adds))
        for target, values in arrivals.items():
            keeps = all(adds for _, adds in values)
            require(keeps or len(values) == 1, f"in step {step} a rank is sent a value to keep, and others")
            sums[target] *= keeps
            for vectors, _ in values:
                require(not sums[target] & vectors, f"in step {step} a rank adds a vector twice")
                sums[target] |= vectors
    require({*sums.values()} == {(1 << network.ranks) - 1}, "a rank lacks a vector in the end")
    return ALLREDUCE, rows, [chunks] * len(rows), [], 1


def check_flow(schedule: Any, network: Network) -> Schedule:
    """Check paths of chunks from ranks to ranks, in stages or not."""
    staged, ranks = schedule["kind"] == "staged-flow", network.ranks
    names = "kind chunks_per_unit traffic weights paths steps" + " servers" * staged
    _, chunks, traffic, weights, paths, steps, *servers = fields(schedule, names)
    links = path_links(paths, network, "broadcast", range(ranks))
    integers([chunks, *weights], 1, inf, "chunks")
    demands = integers([entry for row in traffic for entry in row], 0, inf, "traffic")
    require([*map(len, traffic)] == [ranks] * ranks, "the traffic is no row of numbers for each rank")
    counts = len(weights), len(integers(steps, 0, inf, "steps"))
    require(counts == (len(paths), sum(map(len, links))), "paths have not one weight, and links one step each")
    rows: list[Any] = [Counter() for _ in {*steps}]
    remaining, legs = iter(steps), set()
    delivered: Counter[Pair] = Counter()
    for path, way, weight in zip(paths, links, weights):
        delivered[path[0], path[-1]] += weight
        sender, last = path[0], -inf
        for (tail, head), step in zip(way, remaining):
            require(last < step if tail < ranks else last == step, f"the steps of path {path} are not in order")
            rows[step][tail, head] += weight
            last = step
            if head < ranks:
                legs.add((step, sender, head))
                sender = head
    for pair, demand in enumerate(demands):
        source, target = divmod(pair, ranks)
        require(source == target or delivered[source, target] == chunks * demand, f"{source} to {target} is incomplete")
    for own in servers:
        require(len(integers(own, 0, inf, "servers")) == ranks, "there is not one server for each rank")
        away = [leg for leg in legs if own[leg[1]] != own[leg[2]]]
        for end in (1, 2):
            require(len({(leg[0], leg[end]) for leg in away}) == len(away), "a rank has two partners in a step")
    rows = rows if staged else [sum(rows, Counter())]
    return PAIRS, rows, [chunks] * len(rows), demands, Fraction(sum(demands), ranks)


def check_allreduce(schedule: Any, network: Network) -> Schedule:
    """Check a reduction and a broadcast, along trees at the same time, in steps one after the other."""
    _, *halves = fields(schedule, "kind reduce broadcast")
    [kind] = {half["kind"] for half in halves}
    one, other = (SCHEDULES[kind](half, network) for half in halves)
    require(one[3] == other[3], "other shards are broadcast than reduced")
    rows, units = one[1] + other[1], one[2] + other[2]
    if kind != "steps":
        loads: Counter[Pair] = Counter()
        for row, unit in zip(rows, units):
            loads.update({ends: load * (lcm(*units) // unit) for ends, load in row.items()})
        rows, units = [loads], [lcm(*units)]
    return one[0] + other[0], rows, units, [], other[4]


SCHEDULES = {
    "forest": check_forest,
    "symmetric-forest": check_symmetric_forest,
    "demand-forest": check_demand_forest,
    "steps": check_steps,
    "exchange": check_exchange,
    "flow": check_flow,
    "staged-flow": check_flow,
    "allreduce": check_allreduce,
}


# The five steps


def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object without repeated keys."""
    require(len(dict(pairs)) == len(pairs), "an object has a key twice")
    return dict(pairs)


def check_plan(path: str) -> Iterator[str]:
    """Yield a line for each step that a plan passes."""
    data = Path(path).read_bytes()
    plan = json.loads(data.decode("utf-8-sig"), object_pairs_hook=unique, parse_float=str)
    names = "format version made_by collective planner options inverse_rate bound topology_digest topology link_loads"
    form, version, _, collective, _, _, stated, _, digest, topology, loads, schedule = fields(
        plan, f"{names} schedule", "scoped_bound"
    )
    require(form == "collopt-plan" and version == 10, "this is no collopt-plan of version 10")
    pattern = PHASES[collective]
    yield f"{collective} plan, SHA-256 {hashlib.sha256(data).hexdigest()}"

    network = Network(topology)
    require(network.digest() == digest, f"the digest of the network is {network.digest()}, not the stated one")
    yield f"{network.ranks} ranks, {network.size - network.ranks} switches, {len(network.links)} links"

    bounds = [check_bound(plan, name, network) for name in ("bound", *({"scoped_bound"} & plan.keys()))]
    yield "; ".join(text for _, _, text in bounds)

    phases, rows, units, weights, total = SCHEDULES[schedule["kind"]](schedule, network)
    stepwise = {"steps", "exchange", "staged-flow"} & {schedule["kind"], schedule.get("reduce", schedule)["kind"]}
    stated_rows = [integers(row, 0, inf, "loads") for row in (loads if stepwise else [loads])]
    fits = stated_rows == [[row[ends] for ends in network.links] for row in rows]
    require(fits, "link_loads are not those of the schedule")
    rate = Fraction(0)
    for row, unit in zip(rows, units):
        rate += max(load / (unit * network.links[ends][0]) for ends, load in row.items() if load)
    require(rate == fraction(stated), f"the busiest links give 1/x = {rate}, and the plan claims {stated}")
    yield f"all data arrives; the busiest links give 1/x = {rate}"

    require(phases == pattern, "the schedule is not of the kind that the collective needs")
    require((collective == "demands") == (schedule["kind"] == "demand-forest"), "demands need a demand-forest")
    for problem, limit, _ in bounds:
        require(weights in ([], problem.weights), "the shards of schedule and bound differ")
        require(total / rate <= limit, f"{total / rate} GB/s beats the bound of {limit} GB/s")
    limit = bounds[0][1]
    yield f"right: {total / rate} GB/s of at most {limit} GB/s, gap {1 - total / rate / limit}"


def main() -> int:
    """Check the plan file that the command line names; returns 0 if it is right, else 1."""
    if len(sys.argv) != 2:
        sys.exit("usage: collopt_check.py PLAN.json")
    status, lines = 0, check_plan(sys.argv[1])
    for step in ("file", "topology", "bound", "schedule", "result"):
        try:
            text = next(lines, "not checked")
        except Exception as error:  # Python refuses much of what is malformed
            status, text = 1, f"WRONG ({type(error).__name__}): {error}"
        # Text of the plan may not break lines, nor hold what a terminal obeys or cannot show.
        print(f"{step:9} {text}".encode("unicode_escape").decode())
    return status


if __name__ == "__main__":
    sys.exit(main())
