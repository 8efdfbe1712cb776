"""Resharding of state dicts through torch.distributed, by a plan for the network or by direct copies."""

from __future__ import annotations

import json
import os
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, cast
from weakref import WeakKeyDictionary

import numpy as np

from ...errors import ColloptError, ProgramError, UnsupportedError
from ...planners import Plan
from ...planners import plan as make_plan
from ...schedules import Demands, as_bytes
from ...support.arrays import IntArray
from ...support.validation import as_kind
from ...topologies import Topology, read_topology
from ..execution.agreement import (
    RESHARDING,
    agree_on,
    bounded_timeout,
    checked,
    connect,
    digest,
    first_line,
    gathered,
    refuse,
    stop,
    wait,
)
from ..execution.arguments import agreement_device, check_async, import_torch, joined_group, served_devices
from ..execution.call_queue import AsyncWork, run_in_order, run_now, start
from ..execution.local_ranks import out_of_memory_as_error
from ..plan_cache import TOPOLOGY_VARIABLE
from ..programs.program import check_seconds
from .cells import Resharding, Rules, TensorMove, as_rules, compare_shardings, find_rule
from .moves import Moves, direct_copies, planned_copies, sliced
from .sharding import Mesh
from .sharding import Shard as OwnShard
from .specs import MovedTensor, RankSpec, check_apart, merged, read_tensors
from .transport import RankRoute, Tables, run

if TYPE_CHECKING:
    import torch
    import torch.distributed as dist

MAX_SCRATCH = 2**26
MAX_ROUTES = 16  # Of a group, the latest
MIN_GRAINS, GRAINS_PER_ITEM = 2**12, 64  # To which sizes are rounded for a plan
WORD = 8  # Bytes of the numbers that ranks gather

_routes: WeakKeyDictionary[Any, OrderedDict[object, Route]] = WeakKeyDictionary()
_digests: WeakKeyDictionary[Any, int] = WeakKeyDictionary()  # Of plans, by schedule


class Terms(NamedTuple):
    """Checked arguments of one rank's call; shardings are on the ranks of the group."""

    state: dict[str, Any]
    output: dict[str, Any] | None
    spec: bytes
    source: Rules | None
    target: Rules | None
    topology: Topology | None
    plan: Plan | None
    scratch: int
    device: Any


class Route(NamedTuple):
    """What all ranks do in calls with the same arguments."""

    tensors: list[MovedTensor]
    own: RankRoute


class ReshardWork(NamedTuple):
    """An asynchronous resharding; leave its tensors alone until `wait` has returned.

    Attributes
    ----------
    work : AsyncWork
        Of the call, with ``is_completed()``.
    tensors : dict
        This rank's tensors afterwards.
    """

    work: AsyncWork
    tensors: dict[str, Any]

    def wait(self, timeout: float | timedelta | None = None) -> dict[str, Any]:
        """Wait until this rank's tensors are complete, or at most `timeout` seconds, and return them."""
        self.work.wait(timeout)
        return self.tensors


def reshard(
    state: Mapping[str, torch.Tensor],
    source: Any = None,
    target: Any = None,
    *,
    output: Mapping[str, torch.Tensor] | None = None,
    group: dist.ProcessGroup | None = None,
    topology: Topology | str | os.PathLike[str] | None = None,
    plan: Plan | None = None,
    max_scratch_bytes: int | str = MAX_SCRATCH,
    timeout: float | None = None,
    async_op: bool = False,
) -> dict[str, torch.Tensor] | ReshardWork:
    """Move a state dict from one sharding to another, as a plan says; all ranks of the group have to call.

    Ranks that have nothing before give an empty state.  The first call with tensors of some kinds and shapes makes the
    plan, on rank 0; later calls compare a digest and go on.  Wrong arguments, or states that do not fit together, raise
    on every rank before anything moves.  No rank returns before all ranks have their tensors, but for CUDA tensors with
    `async_op`.

    Raises `UnsupportedError` if this rank's arguments are wrong; `ProgramError` if those of another are, the ranks'
    tensors do not fit together, or the exchange fails or is late, after which the output is undefined.

    Parameters
    ----------
    state : mapping
        From names to this rank's parts of tensors: contiguous ones of any type, or DTensors.
    source, target : Sharding, pair of mesh and placements, or mapping
        How tensors lie before and after, the same on all ranks; a mapping has them by name, or by pattern such as
        ``"*.weight"``, of which the first counts.  Meshes are `Mesh` or DeviceMesh and name ranks of the default group.
        None stands for what the DTensors of `state`, or of `output`, say.
    output : mapping, optional
        Tensors to write to, on all ranks of the target or on none, apart from the state; new ones by default.
    group : torch.distributed.ProcessGroup, optional
        None is the default group.
    topology : Topology or path, optional
        Network that is planned for, the same on all ranks; rank r of the group is its compute node r.  Of the network
        of all ranks, a smaller group has its part.  By default that of the environment variable ``COLLOPT_TOPOLOGY``.
        Without one, every rank gets its bytes by direct copies, each from the source that sends least.
    plan : Plan, optional
        For the demands of these tensors, as `Resharding.demands` states them, instead of a new plan.
    max_scratch_bytes : int or str
        Memory that a rank uses beside its tensors, by default 64 MiB.
    timeout : float, optional
        Seconds that one batch of messages may take; None leaves it to the process group.
    async_op : bool
        Return when the ranks have agreed, while data is still on its way.  Each rank may choose for itself.

    Returns
    -------
    dict or ReshardWork
        This rank's tensors: `output`, or new ones, which are DTensors where `target` has a DeviceMesh; without those
        whose mesh this rank is not in.  With `async_op` a work with ``wait()``, which returns them.
    """
    rank, p2p = joined_group(group, *_tensors_of(state))
    seconds, networks = bounded_timeout(timeout), (topology, plan)
    terms = checked(
        RESHARDING,
        lambda: _check((state, output), (source, target), networks, max_scratch_bytes, timeout, async_op, group, p2p),
    )
    route = run_in_order(p2p, partial(_agreed_route, terms, p2p, seconds, rank))
    assert isinstance(terms, Terms)  # Or the agreement would have raised it.
    connect(p2p, terms.device, seconds)
    tensors = _new_tensors(route, rank, terms.device) if terms.output is None else terms.output
    result = _wrapped(tensors, route, target) if output is None else dict(output)
    waits = terms.device.type == "cpu" or not async_op
    job = partial(_run, route, (terms.state, tensors), terms.device, p2p, seconds, waits)
    if async_op:
        inputs = [_empty(terms.device), *terms.state.values()]
        return ReshardWork(start(p2p, job, list(tensors.values()), inputs), result)
    run_now(p2p, job)
    return result


def _empty(device: Any) -> Any:
    """Return a tensor without elements, which states the device where a rank has no other tensors."""
    torch, _ = import_torch()
    return torch.empty(0, device=device)


def _tensors_of(state: object) -> list[Any]:
    return list(state.values()) if isinstance(state, Mapping) else []


def _check(
    tables: tuple[Any, Any],
    shardings: tuple[Any, Any],
    networks: tuple[Any, Any],
    max_scratch_bytes: Any,
    timeout: Any,
    async_op: Any,
    group: Any,
    p2p: Any,
) -> Terms:
    """Check the arguments of a call."""
    _, dist = import_torch()
    members = list(dist.get_process_group_ranks(dist.group.WORLD if group is None else group))
    if timeout is not None:
        check_seconds("timeout", timeout)
    state, table = read_tensors(tables[0], "state", members)
    output, writes = None, None
    if tables[1] is not None:
        output, writes = read_tensors(tables[1], "output", members)
        check_apart(state, output)
    source, target = _rules(shardings[0], "source", members), _rules(shardings[1], "target", members)
    network, own_plan = networks
    if own_plan is not None:
        as_kind(as_kind(own_plan, Plan, "plan").collective, Demands, "what the plan is for")
        network = own_plan.topology
    elif network is None:
        network = os.environ.get(TOPOLOGY_VARIABLE) or None
    if network is not None and not isinstance(network, Topology):
        network = read_topology(network)
    if network is not None and own_plan is None and len(members) < network.num_ranks == dist.get_world_size():
        network = network.restrict([network.compute_nodes[rank] for rank in members])
    if network is not None and network.num_ranks != len(members):
        raise UnsupportedError(f"{network} has {network.num_ranks} ranks; expected {len(members)}, as the group has")
    scratch = as_bytes(max_scratch_bytes, "max_scratch_bytes")
    device = _device(p2p, [*state.values(), *(output or {}).values()])
    check_async(async_op, _empty(device), timeout)
    spec = RankSpec(table, writes).encoded()
    return Terms(state, output, spec, source, target, network, own_plan, scratch, device)


def _rules(value: object, what: str, members: Sequence[int]) -> Rules | None:
    if value is None:
        return None
    return tuple((name, sharding.on_ranks(members)) for name, sharding in as_rules(value, what))


def _device(group: Any, tensors: Sequence[Any]) -> Any:
    """Return the device of the tensors; without any, the one that the group serves."""
    kinds = served_devices(group)
    device = next((tensor.device for tensor in tensors), None) or agreement_device(group)
    if any(tensor.device != device for tensor in tensors) or device.type not in kinds:
        places = ", ".join(sorted({str(tensor.device) for tensor in tensors}))
        raise UnsupportedError(f"the tensors are on {places}; expected one device, {' or '.join(sorted(kinds))}")
    return device


def _agreed_route(terms: Terms | ColloptError, group: Any, seconds: float | None, rank: int) -> Route:
    """Compare the call with those of all ranks; return its route, of an earlier call with the same arguments if any."""
    if isinstance(terms, ColloptError):
        refuse(RESHARDING, terms, group, seconds)
    equal = {
        "the source": _text(terms.source),
        "the target": _text(terms.target),
        "the topology": None if terms.topology is None else terms.topology.digest,
        "the plan": None if terms.plan is None else _plan_digest(terms.plan),
        "max_scratch_bytes": terms.scratch,
        "the kind of device": terms.device.type,
    }
    table = agree_on(RESHARDING, equal, [digest(terms.spec), len(terms.spec)], group, seconds)
    key = table[:, 0].tobytes(), *equal.values()
    routes = _routes.setdefault(group, OrderedDict())
    if key in routes:
        routes.move_to_end(key)
        return routes[key]
    words = -(-int(table[:, 1].max()) // WORD)
    padded = np.frombuffer(terms.spec.ljust(words * WORD, b"\0"), dtype=np.int64).tolist()
    rows = gathered(padded, group, seconds, RESHARDING)
    specs = [RankSpec.decoded(row.tobytes()[:size]) for row, size in zip(rows, table[:, 1].tolist(), strict=True)]
    try:
        tensors = merged(specs, terms.source, terms.target)
        moves = compare_shardings([tensor.move for tensor in tensors])
    except ColloptError as error:
        stop(ProgramError(str(error)), group)
    plan_text = checked(RESHARDING, partial(_planned, moves, terms)) if rank == 0 else None
    route = Route(tensors, RankRoute(moves, _shared(plan_text, group, seconds), rank))
    routes[key] = route
    if len(routes) > MAX_ROUTES:
        routes.popitem(last=False)
    return route


def _plan_digest(own_plan: Plan) -> int:
    """Return a number that stands for a plan, computed once."""
    if own_plan.schedule not in _digests:
        _digests[own_plan.schedule] = digest(json.dumps(own_plan.to_json()).encode())
    return _digests[own_plan.schedule]


def _text(rules: Rules | None) -> str | None:
    return None if rules is None else json.dumps([[name, sharding.to_json()] for name, sharding in rules])


def _planned(moves: Resharding, terms: Terms) -> Moves:
    """Plan the messages of all ranks."""
    sizes = [item.size for item in moves.items]
    if terms.topology is None or not sizes:
        rows, units = direct_copies(moves.items)
    else:
        # A grain is less than a hundredth of the data even where every item is rounded by half of one.
        grains = max(MIN_GRAINS, GRAINS_PER_ITEM * len(sizes))
        own_plan = terms.plan or make_plan(terms.topology, moves.demands(terms.topology, grains=grains))
        weights = [group.weight for group in cast("Demands", own_plan.collective).groups]
        rows, units = planned_copies(own_plan.schedule, terms.topology, moves.items, weights)
    return sliced(rows, units, sizes, terms.scratch)


def _shared(moves: Moves | ColloptError | None, group: Any, timeout: float | None) -> Moves:
    """Tell all ranks the messages of rank 0, or the error that it had."""
    if isinstance(moves, ColloptError):
        text = np.frombuffer(str(moves).encode(), dtype=np.uint8).astype(np.int64)
        _broadcast(np.array([-1, len(text), 0]), group, None)
        _broadcast(text, group, timeout)
        raise moves
    head = np.zeros(3, dtype=np.int64)
    if moves is not None:
        head[:] = len(moves.rows), len(moves.units), moves.slices
    count, size, slices = _broadcast(head, group, None).tolist()  # Planning may take longer than messages.
    if count < 0:
        text = _broadcast(np.zeros(size, dtype=np.int64), group, timeout).astype(np.uint8)
        stop(ProgramError(f"rank 0 made no plan: {text.tobytes().decode()}"), group)
    data = np.zeros(count * 7 + size, dtype=np.int64)
    if moves is not None:
        data = np.concatenate([moves.rows.ravel(), moves.units])
    data = _broadcast(data, group, timeout)
    return Moves(data[: count * 7].reshape(-1, 7), data[count * 7 :], slices)


def _broadcast(numbers: IntArray, group: Any, timeout: float | None) -> IntArray:
    """Return the numbers of the group's first rank; int64 of the same shape."""
    torch, dist = import_torch()
    tensor = torch.from_numpy(np.array(numbers, dtype=np.int64)).to(agreement_device(group))
    try:
        if len(numbers):
            wait(group.broadcast([tensor], dist.BroadcastOptions()), timeout)
        result: IntArray = tensor.cpu().numpy()
    except RuntimeError as error:
        raise ProgramError(f"the ranks could not agree on {RESHARDING}: {first_line(error)}") from error
    return result


def _new_tensors(route: Route, rank: int, device: Any) -> dict[str, Any]:
    """Allocate the tensors that a rank has afterwards."""
    torch, _ = import_torch()
    tensors = {}
    with out_of_memory_as_error("the tensors after the resharding", "fewer tensors at a time, or an output"):
        for move, dtype in route.tensors:
            if rank in move.target.mesh.ranks:
                box = move.target.boxes(move.shape)[move.target.mesh.ranks.index(rank)]
                shape = (box[:, 1] - box[:, 0]).tolist()
                tensors[move.name] = torch.empty(shape, dtype=getattr(torch, dtype), device=device)
    return tensors


def _wrapped(tensors: dict[str, Any], route: Route, target: Any) -> dict[str, Any]:
    """Make DTensors of the tensors whose target has a DeviceMesh."""
    result = {}
    for move, _ in route.tensors:
        if move.name in tensors:
            value = find_rule(target, move.name, "target") if isinstance(target, Mapping) else target
            result[move.name] = tensors[move.name]
            if isinstance(value, tuple) and not isinstance(value[0], Mesh):
                result[move.name] = as_dtensor(tensors[move.name], value[0], move)
    return result


def as_dtensor(tensor: Any, device_mesh: Any, move: TensorMove) -> Any:
    """Make a DTensor of this rank's part of a tensor."""
    import torch
    from torch.distributed.tensor import DTensor, Replicate, Shard
    from torch.distributed.tensor.placement_types import _StridedShard

    placements: list[Any] = []
    for placement in move.target.placements:
        if not isinstance(placement, OwnShard):
            placements.append(Replicate())
        elif placement.split_factor > 1:
            placements.append(_StridedShard(placement.dim, split_factor=placement.split_factor))
        else:
            placements.append(Shard(placement.dim))
    like = torch.empty(move.shape, device="meta")
    return DTensor.from_local(tensor, device_mesh, placements, run_check=False, shape=like.shape, stride=like.stride())


def _run(route: Route, tables: Tables, device: Any, group: Any, timeout: float | None, waits: bool) -> None:
    """Move the tensors; then wait for all ranks, as one that has its data would not notice that another fails."""
    run(route.own, tables, device, group, timeout)
    if waits:
        gathered([0], group, timeout, RESHARDING)
