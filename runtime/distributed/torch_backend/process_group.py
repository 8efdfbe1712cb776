"""The process group of the ``collopt`` backend: plans where there are some, the wrapped backend for the rest.

Facts about torch that this rests on (torch 2.13):

- Python can override `ProcessGroup`, not `Backend`; what C++ callers such as DDP reach in a subclass are ``allreduce``,
  ``broadcast``, ``allgather``, ``barrier`` and a few more, everything else goes to the backends registered on it.
- Only groups whose type is `ProcessGroup` itself post batches of messages as one NCCL group.  So plans run on a second,
  plain group of the same ranks, which also keeps their messages apart from the caller's.
- A DDP model that outlives its group ends the group's backends while it holds Python's lock.  Gloo's threads may want
  that lock to drop their last works, and Gloo waits for its threads: for ever.  Python itself lets go of the lock when
  it ends a backend, so it must be the one to do so.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any
from weakref import finalize

from ....errors import UnsupportedError
from ....planners import Plan
from ....schedules import ALL_TO_ALL, ALLGATHER, ALLREDUCE, BROADCAST, REDUCE, REDUCE_SCATTER, Collective
from ..calls.arguments import check_process, import_torch
from ..calls.reduce_ops import TYPES
from .call_forms import are_alike, done, in_lists, joined, misplacement, spread
from .plan_cache import PlanShelf, Request
from .settings import BackendSettings
from .works import run_plan
from .wrapped_backends import available_devices, connected, forget_lane, lane, plain_group, register

torch, dist = import_torch()
ProcessGroup: Any = dist.ProcessGroup

OPERATIONS = {
    dist.ReduceOp.SUM: "sum",
    dist.ReduceOp.PRODUCT: "prod",
    dist.ReduceOp.MIN: "min",
    dist.ReduceOp.MAX: "max",
    dist.ReduceOp.AVG: "avg",
}

logger = logging.getLogger("collopt.runtime.backend")

_said: set[str] = set()
_gone: list[Any] = []
"""Plain groups of destroyed groups that no model holds any more; Python ends them when the next group begins."""


class PlannedGroup(ProcessGroup):  # type: ignore[misc]
    """A group that runs collectives by plans."""

    def __init__(self, options: Any, group_options: object, settings: BackendSettings, shelf: PlanShelf) -> None:
        # With the store, which the base class would take too, pybind11 makes an object that cannot be overridden.
        super().__init__(options.group_rank, options.group_size)
        check_process(self)
        _gone.clear()
        backends = {device: connected(options, "", device, group_options) for device in available_devices()}
        self._plain = plain_group(options, "", backends)
        register(self, backends)
        self._options = options
        self._ranks = list(options.global_ranks_in_group) or list(range(options.group_size))
        self._devices = tuple(backends)
        self._settings = settings
        self._shelf = shelf
        self._misplacement = misplacement(self._ranks)
        self._lanes: dict[str, Any] = {}
        self._over = False
        self.planned: Counter[str] = Counter()
        self.passed_on: Counter[str] = Counter()

    def getBackendName(self) -> str:  # noqa: N802 - torch's name for it.
        """Name under which the group was asked for."""
        return "collopt"

    @in_lists
    def allreduce(self, tensors: list[Any], opts: Any = None) -> Any:
        """Add up in place."""
        opts = opts or dist.AllreduceOptions()
        if len(tensors) == 1 and (plan := self._plan_for(ALLREDUCE, tensors[0], tensors[0].numel(), opts)):
            return self._run(plan, tensors[0], tensors[0], opts)
        return self._plain.allreduce(tensors, opts)

    def allreduce_coalesced(self, tensors: list[Any], opts: Any = None) -> Any:
        """Add up several tensors, as one."""
        opts = opts or dist.AllreduceCoalescedOptions()
        elements = sum(tensor.numel() for tensor in tensors)
        alike = len({(tensor.dtype, tensor.device) for tensor in tensors}) == 1
        if self._can(alike, ALLREDUCE) and (plan := self._plan_for(ALLREDUCE, tensors[0], elements, opts)):
            whole = joined(tensors)
            return self._run(plan, whole, whole, opts, tensors, partial(spread, whole, tensors))
        return self._plain.allreduce_coalesced(tensors, opts)

    @in_lists
    def broadcast(self, tensors: list[Any], opts: Any = None) -> Any:
        """Copy the root's tensor to all."""
        opts = opts or dist.BroadcastOptions()
        if len(tensors) == 1 and (plan := self._plan_for(BROADCAST, tensors[0], tensors[0].numel(), opts)):
            return self._run(plan, tensors[0], tensors[0], opts)
        return self._plain.broadcast(tensors, opts)

    @in_lists
    def reduce(self, tensors: list[Any], opts: Any = None) -> Any:
        """Add up at the root, whose tensor alone changes."""
        opts = opts or dist.ReduceOptions()
        if len(tensors) == 1 and (plan := self._plan_for(REDUCE, tensors[0], tensors[0].numel(), opts)):
            return self._run(plan, tensors[0], tensors[0], opts)
        return self._plain.reduce(tensors, opts)

    def all_gather_single(self, output: Any, input: Any, opts: Any = None) -> Any:  # noqa: A002
        """Gather into one tensor."""
        opts = opts or dist.AllgatherOptions()
        if plan := self._plan_for(ALLGATHER, output, output.numel(), opts):
            return self._run(plan, output, input, opts)
        return self._plain._allgather_base(output, input, opts)

    def reduce_scatter_single(self, output: Any, input: Any, opts: Any = None) -> Any:  # noqa: A002
        """Add up one tensor and share it out."""
        opts = opts or dist.ReduceScatterOptions()
        if plan := self._plan_for(REDUCE_SCATTER, input, input.numel(), opts):
            return self._run(plan, output, input, opts)
        return self._plain._reduce_scatter_base(output, input, opts)

    @in_lists
    def allgather(self, output_tensors: list[list[Any]], input_tensors: list[Any], opts: Any = None) -> Any:
        """Gather into one tensor per rank."""
        opts = opts or dist.AllgatherOptions()
        outputs, own = output_tensors[0], input_tensors[0]
        elements = sum(tensor.numel() for tensor in outputs)
        if self._can(are_alike(outputs, own), ALLGATHER) and (plan := self._plan_for(ALLGATHER, own, elements, opts)):
            whole = torch.empty(elements, dtype=own.dtype, device=own.device)
            return self._run(plan, whole, own, opts, outputs, partial(spread, whole, outputs))
        return self._plain.allgather(output_tensors, input_tensors, opts)

    @in_lists
    def reduce_scatter(self, output_tensors: list[Any], input_tensors: list[list[Any]], opts: Any = None) -> Any:
        """Add up one tensor per rank, each for its rank."""
        opts = opts or dist.ReduceScatterOptions()
        inputs, own = input_tensors[0], output_tensors[0]
        elements = sum(tensor.numel() for tensor in inputs)
        if self._can(are_alike(inputs, own), REDUCE_SCATTER) and (
            plan := self._plan_for(REDUCE_SCATTER, own, elements, opts)
        ):
            whole = joined(inputs)
            return self._run(plan, own, whole, opts)
        return self._plain.reduce_scatter(output_tensors, input_tensors, opts)

    def all_gather_single_coalesced(self, outputs: list[Any], inputs: list[Any], opts: Any = None) -> Any:
        """Gather several tensors, one after the other."""
        for output, own in zip(outputs, inputs, strict=True):
            self.all_gather_single(output, own, opts).wait()
        return done(outputs)

    def reduce_scatter_single_coalesced(self, outputs: list[Any], inputs: list[Any], opts: Any = None) -> Any:
        """Add up several tensors and share them out, one after the other."""
        for output, own in zip(outputs, inputs, strict=True):
            self.reduce_scatter_single(output, own, opts).wait()
        return done(outputs)

    def all_to_all_single(
        self,
        output: Any,
        input: Any,  # noqa: A002
        output_split_sizes: Any,
        input_split_sizes: Any,
        opts: Any = None,
    ) -> Any:
        """Send every rank its part of one tensor."""
        opts = opts or dist.AllToAllOptions()
        if output_split_sizes or input_split_sizes:
            self._pass_on(ALL_TO_ALL, "its splits may differ; collopt.runtime.all_to_all_single schedules such calls")
        elif plan := self._plan_for(ALL_TO_ALL, input, input.numel(), opts):
            return self._run(plan, output, input, opts)
        return self._plain.alltoall_base(output, input, output_split_sizes, input_split_sizes, opts)

    # What torch before 2.13 calls them.
    _allgather_base = all_gather_single
    _reduce_scatter_base = reduce_scatter_single
    allgather_into_tensor_coalesced = all_gather_single_coalesced
    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced
    alltoall_base = all_to_all_single

    def _can(self, alike: bool, collective: Collective) -> bool:
        """Say so if a call's tensors differ too much to be one."""
        if not alike:
            self._pass_on(collective, "its tensors differ in size, type or device")
        return alike

    def _plan_for(self, collective: Collective, whole: Any, elements: int, opts: Any) -> Plan | None:
        """Choose a plan, by what is the same on all ranks alone; say why if there is none."""
        num_bytes = elements * whole.element_size()
        if self.size() == 1 or num_bytes < max(1, self._settings.min_bytes):
            self.passed_on[collective.name] += 1
            return None
        root = opts.rootRank if collective.has_one_root else None
        reason = self._obstacle(collective, whole, opts)
        found = reason or self._shelf.find(Request(collective, num_bytes, root))
        if isinstance(found, str):
            self._pass_on(collective, found)
            return None
        return found

    def _obstacle(self, collective: Collective, whole: Any, opts: Any) -> str | None:
        """Say why no plan at all would do."""
        if self._misplacement:
            return self._misplacement
        if whole.layout != torch.strided:
            return f"tensors are {whole.layout}"
        if whole.device.type not in self._devices:
            return f"tensors are on {whole.device.type}"
        if collective.reduces:
            kind = opts.reduceOp.op
            op, dtype = OPERATIONS.get(kind), str(whole.dtype).removeprefix("torch.")
            if op is None:
                return f"{str(kind).rpartition('.')[2]} is not supported by plans"
            if dtype not in TYPES[op]:
                return f"{op} is not supported on {dtype} by plans"
        return None

    def _pass_on(self, collective: Collective, reason: str) -> None:
        """Count a call that the wrapped backend gets, and say so the first time, on the first rank."""
        self.passed_on[collective.name] += 1
        text = f"{collective} on {self.size()} ranks runs without a plan: {reason}"
        if text not in _said:
            _said.add(text)
            logger.log(logging.WARNING if self.rank() == 0 else logging.DEBUG, text)

    def _run(
        self,
        plan: Plan,
        output: Any,
        input: Any,  # noqa: A002
        opts: Any,
        results: Sequence[Any] = (),
        afterwards: Callable[[], object] = lambda: None,
    ) -> Any:
        """Run a plan, or begin to if the caller is not going to wait at once."""
        begun = run_plan(
            plan,
            output,
            input,
            group=self.lane_for(output.device.type),
            slices=self._settings.slices,
            op=OPERATIONS[opts.reduceOp.op] if plan.collective.reduces else "sum",
            # Older versions of torch do not tell.
            at_once=not getattr(opts, "asyncOp", False),
            results=results,
            afterwards=afterwards,
        )
        self.planned[plan.collective.name] += 1
        return begun

    def lane_for(self, device: str | None = None) -> Any:
        """Return the plain group that plans run on; all ranks come here at the same call."""
        check_process(self)
        if self._over:
            raise UnsupportedError("the group has been destroyed; make another one")
        found = device if device in self._devices else self._devices[-1]
        if found not in self._lanes:
            self._lanes[found] = lane(self._options, self._ranks, found)
        return self._lanes[found]

    def shutdown(self) -> None:
        """End all communication; `destroy_process_group` calls this."""
        self._over = True
        while self._lanes:
            forget_lane(self._lanes.popitem()[1])
        self._plain.shutdown()
        # A model that holds this group keeps it alive, and so keeps the plain one.
        finalize(self, _gone.append, self._plain).atexit = False

    def abort(self) -> None:
        """End all communication without waiting for it."""
        self._over = True
        for each in self._lanes.values():
            each.abort()
        self._plain.abort()
