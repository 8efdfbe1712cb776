"""Packing of spanning out-trees by maximum flows: a given number per root, within the capacities of the links.

ForestColl section 5.4, Appendix E.3 (Algorithm 4, Theorem 10).  With ``g`` the capacity left and ``r_i`` the trees that
root i still needs, one flow per rank is kept and repaired; a failed repair rejects all links of its cut.
"""

from typing import NamedTuple

import numpy as np

from ...errors import SolverError
from ...support import progress
from ...support.arrays import IntArray, SmallArray
from ...support.kernels import kernel
from ..flows.max_flow import CAPACITY_LIMIT, FlowNetwork, augment, flow_network

UNREACHED, START = -2, -1  # BFS marks of unreached and of start nodes; all other nodes hold the arc that reached them


class Packing(NamedTuple):
    """Spanning out-trees with multiplicities."""

    roots: IntArray  # int64 (trees,)
    weights: IntArray  # int64 (trees,): number of copies of each tree
    links: SmallArray  # int32 (trees, ranks): number of the link on which each rank receives; -1 at the root


class _State(NamedTuple):
    """State of the kernels; arc ``2 i`` passes link i forwards and ``2 i + 1`` backwards."""

    tails: IntArray
    heads: IntArray
    arc_starts: IntArray  # arcs[arc_starts[v]:arc_starts[v + 1]] leave node v in the residual network
    arcs: IntArray
    left: IntArray  # g
    demands: IntArray  # r
    flows: IntArray  # (ranks, links)
    shipped: IntArray  # (ranks,): what the root of the batch ships in each flow
    changes: IntArray  # ring buffer of the links whose capacity was last reduced
    num_changes: IntArray  # (1,): number of reductions so far
    applied: IntArray  # (ranks,): number of reductions that each flow has applied


def pack_trees(
    num_ranks: int, tails: IntArray, heads: IntArray, capacities: IntArray, supplies: IntArray, *, seed: int = 0
) -> Packing:
    """Pack spanning out-trees, ``supplies[i]`` of them rooted at each rank i."""
    order = np.random.default_rng(seed).permutation(num_ranks)
    return pack_roots(num_ranks, tails, heads, capacities, supplies, order)[0]


def pack_roots(
    num_ranks: int, tails: IntArray, heads: IntArray, capacities: IntArray, supplies: IntArray, roots_to_pack: IntArray
) -> tuple[Packing, IntArray]:
    """Pack the trees of some roots so that those of all others still fit; return the capacities left, too."""
    state = _initial_state(num_ranks, tails, heads, capacities, supplies)
    roots, weights, trees = [], [], []
    packed = 0
    with progress.task(int(supplies[roots_to_pack].sum())) as reached:
        for root in roots_to_pack.tolist():
            while state.demands[root] > 0:
                tree = np.full(num_ranks, -1, dtype=np.int32)
                copies = _grow_batch(state, root, tree)
                if copies <= 0:
                    raise SolverError(f"tree packing cannot extend a tree of root {root}, which Theorem 10 rules out")
                roots.append(root)
                weights.append(copies)
                trees.append(tree)
                packed += copies
                reached(packed)
    links = np.array(trees, dtype=np.int32).reshape(-1, num_ranks)
    return Packing(np.array(roots, dtype=np.int64), np.array(weights, dtype=np.int64), links), state.left


def _initial_state(
    num_ranks: int, tails: IntArray, heads: IntArray, capacities: IntArray, supplies: IntArray
) -> _State:
    ends = np.column_stack([tails, heads]).ravel()
    arcs = np.argsort(ends, kind="stable")
    starts = np.concatenate([[0], np.cumsum(np.bincount(ends, minlength=num_ranks))])
    flows = np.zeros((num_ranks, len(tails)), dtype=np.int64)
    columns = np.concatenate([tails, np.full(num_ranks, num_ranks)]), np.concatenate([heads, np.arange(num_ranks)])
    network = flow_network(num_ranks + 1, *columns, np.concatenate([capacities, supplies]))
    for part in progress.batches(num_ranks):
        unserved = _first_flows(network, flows, *part)
        if unserved >= 0:
            raise SolverError(f"rank {unserved} cannot receive every supply at once, so the requested trees do not fit")
    return _State(
        tails,
        heads,
        starts.astype(np.int64),
        arcs.astype(np.int64),
        capacities.copy(),
        supplies.copy(),
        flows,
        np.zeros(num_ranks, dtype=np.int64),
        np.zeros(len(tails) + 1, dtype=np.int64),
        np.zeros(1, dtype=np.int64),
        np.zeros(num_ranks, dtype=np.int64),
    )


@kernel
def _first_flows(network: FlowNetwork, flows: IntArray, begin: int, end: int) -> int:
    """Fill rows of `flows` with one maximum flow per rank; return a rank that cannot receive every supply, or -1."""
    ranks, links = flows.shape
    scratch = np.empty((4, ranks + 1), dtype=np.int64)
    for sink in range(begin, end):
        residual = network.capacities.copy()
        residual[2 * (links + sink)] = 0
        demand = residual[2 * links :: 2].sum()
        pushed = augment(network, residual, ranks, sink, demand, scratch)
        if pushed < demand:
            return sink
        flows[sink] = residual[1 : 2 * links : 2]
    return -1


@kernel
def _grow_batch(state: _State, root: int, tree: SmallArray) -> int:
    """Grow one tree from `root`, write its links into `tree`, and return its number of copies; 0 if that fails.

    Breadth first, and within a level by largest capacity left, which balances use and keeps trees low.
    """
    ranks = len(state.demands)
    depths = np.full(ranks, -1, dtype=np.int64)
    depths[root] = 0
    # Per link: -1 until rejected, then the largest number of copies that it may still join.
    spare = np.full(len(state.left), -1, dtype=np.int64)
    copies: int = state.demands[root]
    state.shipped[:] = copies
    grown, level = 1, 0
    # Add links level by level.
    while grown < ranks:
        candidates = _candidates(state, depths, level, copies, spare)
        for link in candidates:
            head = state.heads[link]
            if depths[head] >= 0 or spare[link] >= 0:
                continue
            mark = _try_join(state, root, link, copies, spare)
            if mark < 0:
                return 0
            if mark == copies:
                depths[head] = level + 1
                tree[head] = link
                grown += 1
        level += 1
        # Stuck: continue with the most copies that some link out of the tree can join.
        if grown < ranks and not (depths == level).any():
            fewer = _max_copies(state, root, depths, copies, spare)
            if fewer <= 0:
                return 0
            _release_copies(state, root, tree, copies - fewer)
            copies, level = fewer, 0
            spare[:] = -1
    state.demands[root] -= copies
    return copies


@kernel
def _candidates(state: _State, depths: IntArray, level: int, copies: int, spare: IntArray) -> IntArray:
    """List links with capacity for all copies from ranks at `level` of the tree to ranks outside, by capacity left.

    Links with less capacity cannot join; `_max_copies` considers them once the tree is stuck.
    """
    links = np.empty(len(state.left), dtype=np.int64)
    count = 0
    for rank in range(len(depths)):
        if depths[rank] == level:
            for place in range(state.arc_starts[rank], state.arc_starts[rank + 1]):
                arc = state.arcs[place]
                link = arc >> 1
                if arc & 1 == 0 and state.left[link] >= copies and spare[link] < 0 and depths[state.heads[link]] < 0:
                    links[count] = link
                    count += 1
    candidates = links[:count]
    return candidates[np.argsort(-state.left[candidates], kind="mergesort")]


@kernel
def _max_copies(state: _State, root: int, depths: IntArray, copies: int, spare: IntArray) -> int:
    """Return the largest number of copies that a link out of the tree can join, or -1 if the state is broken."""
    untested = np.empty(len(spare), dtype=np.int64)
    count = 0
    best: int = 0
    for link in range(len(spare)):
        if depths[state.tails[link]] >= 0 and depths[state.heads[link]] < 0:
            if spare[link] >= 0:
                best = max(best, min(spare[link], state.left[link]))
            else:
                untested[count] = link
                count += 1
    candidates = untested[:count]
    for link in candidates[np.argsort(-state.left[candidates], kind="mergesort")]:
        # No further link has more capacity left.
        if state.left[link] <= best:
            break
        if spare[link] < 0 and _try_join(state, root, link, copies, spare) < 0:
            return -1
        best = max(best, min(spare[link], state.left[link]))
    return best


@kernel
def _try_join(state: _State, root: int, link: int, copies: int, spare: IntArray) -> int:
    """Return how many copies `link` may join, or -1 if the state is broken.

    A link that all copies may join has its capacity reduced; otherwise `spare` records what the limiting cut allows.
    """
    sink = state.heads[link]
    flow = state.flows[sink]
    excess = np.zeros(len(state.demands), dtype=np.int64)
    marks = np.empty(len(state.demands), dtype=np.int64)
    # Bring the kept flow into the head of the link up to date.
    _apply_changes(state, sink, excess)
    if sink != root:
        excess[root] += state.demands[root] - copies - state.shipped[sink]
        state.shipped[sink] = state.demands[root] - copies
    reserved: int = min(copies, state.left[link])
    state.left[link] -= reserved
    if flow[link] > state.left[link]:
        excess[state.tails[link]] += flow[link] - state.left[link]
        flow[link] = state.left[link]
    # Reroute what the link can no longer carry.
    excess[sink] = -CAPACITY_LIMIT
    _reroute(state, flow, excess, marks)
    deficit: int = np.maximum(excess, 0).sum()
    # What cannot be rerouted limits the copies; the cut limits all links across it.
    if deficit > 0:
        for other in range(len(spare)):
            if marks[state.tails[other]] != UNREACHED and marks[state.heads[other]] == UNREACHED:
                allowed = reserved - deficit
                spare[other] = allowed if spare[other] < 0 else min(spare[other], allowed)
        state.left[link] += deficit
        _reroute(state, flow, excess, marks)
        if (excess > 0).any():
            return -1
    # The copies that join need the link no more.
    excess[sink] = CAPACITY_LIMIT
    _reroute(state, flow, excess, marks)
    allowed = reserved - deficit
    if allowed < copies:
        state.left[link] += allowed
        spare[link] = allowed
        return allowed
    state.changes[state.num_changes[0] % len(state.changes)] = link
    state.num_changes[0] += 1
    return allowed


@kernel
def _apply_changes(state: _State, sink: int, excess: IntArray) -> None:
    """Cap the flow into `sink` by the reduced capacities; the difference becomes excess and deficit."""
    flow = state.flows[sink]
    pending = state.num_changes[0] - state.applied[sink]
    everything = pending >= len(state.changes)
    for place in range(len(flow) if everything else pending):
        link = place if everything else state.changes[(state.applied[sink] + place) % len(state.changes)]
        over = flow[link] - state.left[link]
        if over > 0:
            flow[link] -= over
            excess[state.tails[link]] += over
            excess[state.heads[link]] -= over
    state.applied[sink] = state.num_changes[0]


@kernel
def _reroute(state: _State, flow: IntArray, excess: IntArray, marks: IntArray) -> None:
    """Move excess to deficits along shortest residual paths as long as there are any."""
    queue = np.empty(len(excess), dtype=np.int64)
    while True:
        target = _search(state, flow, excess, marks, queue)
        if target < 0:
            return
        amount, node = -excess[target], target
        while marks[node] != START:
            link = marks[node] >> 1
            if marks[node] & 1:
                amount, node = min(amount, flow[link]), state.heads[link]
            else:
                amount, node = min(amount, state.left[link] - flow[link]), state.tails[link]
        amount = min(amount, excess[node])
        excess[node] -= amount
        excess[target] += amount
        node = target
        while marks[node] != START:
            link = marks[node] >> 1
            if marks[node] & 1:
                flow[link] -= amount
                node = state.heads[link]
            else:
                flow[link] += amount
                node = state.tails[link]


@kernel
def _search(state: _State, flow: IntArray, excess: IntArray, marks: IntArray, queue: IntArray) -> int:
    """Breadth-first search from all excess to the nearest deficit; return its node or -1.

    If there are both and no path connects them, `marks` holds what the search reached.
    """
    done, reached, unserved = 0, 0, False
    for node in range(len(excess)):
        if excess[node] > 0:
            queue[reached] = node
            reached += 1
        elif excess[node] < 0:
            unserved = True
    if reached == 0 or not unserved:
        return -1
    marks[:] = UNREACHED
    for place in range(reached):
        marks[queue[place]] = START
    while done < reached:
        node = queue[done]
        done += 1
        for place in range(state.arc_starts[node], state.arc_starts[node + 1]):
            arc = state.arcs[place]
            link = arc >> 1
            other: int = state.tails[link] if arc & 1 else state.heads[link]
            residual = flow[link] if arc & 1 else state.left[link] - flow[link]
            if residual > 0 and marks[other] == UNREACHED:
                marks[other] = arc
                if excess[other] < 0:
                    return other
                queue[reached] = other
                reached += 1
    return -1


@kernel
def _release_copies(state: _State, root: int, tree: SmallArray, amount: int) -> None:
    """Return `amount` copies of the partial tree to its root, and complete the kept flows of its ranks."""
    for rank in range(len(tree)):
        if tree[rank] >= 0:
            state.left[tree[rank]] += amount
    for rank in range(len(tree)):
        if tree[rank] >= 0:
            state.shipped[rank] += amount
            node = rank
            while node != root:
                state.flows[rank, tree[node]] += amount
                node = state.tails[tree[node]]
