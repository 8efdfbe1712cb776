"""The process group of the ``collopt`` backend: calls run by plans, or else by the wrapped backend.

What C++ callers such as DDP reach in a Python subclass of `ProcessGroup` are ``allreduce``, ``broadcast``,
``allgather`` and a few more (torch 2.13).  Plans run on a second group of torch's own type, the only one that posts
batches as NCCL groups, which also keeps their messages apart from the caller's.
"""

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial, wraps
from typing import Any, NamedTuple
from weakref import finalize

from ..errors import UnsupportedError
from ..planners import Plan
from ..schedules import ALL_TO_ALL, ALL_TO_ALLV, ALLGATHER, ALLREDUCE, BROADCAST, REDUCE, REDUCE_SCATTER, Collective
from .all_to_allv import all_to_all_single
from .all_to_allv.arguments import AllToAllCall
from .execution import execute
from .execution.arguments import TYPES, check_async, check_process, import_torch
from .execution.call_queue import AsyncWork, run_in_order, run_now, start
from .plan_cache import BackendSettings, FailureWatch, PlanCache, Request

torch, dist = import_torch()
ProcessGroup: Any = dist.ProcessGroup
Work: Any = dist.Work

Op = dist.ReduceOp
REDUCE_OPS = {Op.SUM: "sum", Op.PRODUCT: "prod", Op.MIN: "min", Op.MAX: "max", Op.AVG: "avg"}

logger = logging.getLogger("collopt.runtime.backend")
_logged: set[str] = set()
_destroyed: list[Any] = []
"""Wrapped groups of destroyed groups that no model holds any more; they are destroyed when the next group is made.

A DDP model would do so while it holds the GIL, which Gloo's threads may need before Gloo can join them; Python releases
it.
"""
BACKEND_NAMES = {"cpu": "gloo", "cuda": "nccl"}  # Wrapped backends by type of device


class PlannedWork(Work):  # type: ignore[misc]
    """A collective that runs asynchronously by a plan.

    It is a subclass, as a work that torch makes of a future drops the future's error in `wait`, which C++ callers call
    too; those that wait for the future, as DDP does, get the error there.
    """

    def __init__(self, work: AsyncWork, tensors: Sequence[Any]) -> None:
        super().__init__()
        self._work = work
        # C++ gets errors from callbacks only: it takes the argument of `set_exception` for a value.
        self._future = work.get_future().then(lambda _: work.wait() and list(tensors))

    def wait(self, timeout: timedelta = timedelta(0)) -> bool:
        """Wait for completion; on CUDA the current stream waits.  Torch passes 0 for no timeout."""
        return self._work.wait(timeout or None)

    def synchronize(self) -> None:
        """Same as `wait`."""
        self.wait()

    def is_completed(self) -> bool:
        """Whether the collective has finished or failed."""
        return self._work.is_completed()

    def get_future(self) -> Any:
        """Return a future of the output tensors."""
        return self._future


class Tensors(NamedTuple):
    """Output and input of a call; where these are copies, the caller's tensors and the function that fills them."""

    output: Any
    input: Any
    results: Sequence[Any] = ()
    on_complete: Callable[[], object] = lambda: None


def run_prepared(
    prepare: Callable[[Any, Any], tuple[Any, Callable[[], None] | None]], tensors: Tensors, *, synchronous: bool
) -> Any:
    """Run or start the job, if any, of the call that `prepare` returns for a contiguous output and input."""
    output, argument, results, on_complete = tensors
    results = results or [output]
    for tensor in (output, *results):
        check_writable(tensor)
    # Unlike no_grad this also lets us write to tensors that were made so.
    with torch.inference_mode():
        target = contiguous(output)
        source = target if argument is output else contiguous(argument)
    call, job = prepare(target, source)

    def copy_back() -> None:
        with torch.inference_mode():
            if target is not output:
                output.copy_(target)
            on_complete()

    try:
        check_async(not synchronous, target, None)
    except UnsupportedError:
        synchronous = True
    if job is not None and not synchronous:
        return PlannedWork(start(call.group, job, [target], [source, output, *results], on_complete=copy_back), results)
    if job is not None:
        run_now(call.group, job)
    copy_back()
    return completed_work(results)


def list_arguments(method: Callable[..., Any]) -> Callable[..., Any]:
    """Convert a call, such as DDP's, to the overload with lists of tensors and one object with options.

    The base class converts it and calls the method again, which pybind11 only allows from a function of another name.
    """

    @wraps(method)
    def call(self: Any, *args: Any, **named: Any) -> Any:
        if named.keys() - {"opts"} or any(
            isinstance(argument, (torch.Tensor, dist.ReduceOp.RedOpType, int)) for argument in args
        ):
            return getattr(dist.ProcessGroup, method.__name__)(self, *args, **named)
        return method(self, *args, **named)

    return call


def contiguous(tensor: Any) -> Any:
    """Return the tensor, or a contiguous copy without lazy conjugation and negation."""
    return tensor.resolve_conj().resolve_neg().contiguous()


def check_writable(tensor: Any) -> None:
    """Refuse an output whose elements share memory, as in expanded tensors."""
    if any(size > 1 and not stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True)):
        raise UnsupportedError(
            f"an output of shape {tuple(tensor.shape)} has strides {tensor.stride()}, so elements share memory; "
            "expected a place for each, as .contiguous() makes"
        )


def are_uniform(tensors: Sequence[Any], *, in_size: bool) -> bool:
    """Whether all tensors have one type, device and, if asked, number of elements."""
    return len({(tensor.dtype, tensor.device, tensor.numel() if in_size else 0) for tensor in tensors}) == 1


def flatten(tensors: Sequence[Any]) -> Any:
    """Concatenate the elements of several tensors."""
    with torch.inference_mode():
        return torch.cat([contiguous(tensor).view(-1) for tensor in tensors])


def unflatten(buffer: Any, tensors: Sequence[Any]) -> Sequence[Any]:
    """Copy the elements of one tensor to several."""
    with torch.inference_mode():
        for part, tensor in zip(buffer.split([tensor.numel() for tensor in tensors]), tensors, strict=True):
            tensor.copy_(part.view(tensor.shape))
    return tensors


def completed_work(tensors: Sequence[Any]) -> Any:
    """Return completed work; on CUDA its future is ordered after the current stream."""
    on_gpu = {tensor.device for tensor in tensors if tensor.device.type == "cuda"}
    future = torch.futures.Future(devices=sorted(on_gpu, key=str))
    future.set_result(list(tensors))
    return torch._C._distributed_c10d._create_work_from_future(future)


def in_place(collective: Collective, options: Callable[[], Any]) -> Callable[..., Any]:
    """Return the method of a collective that changes its tensor: of all ranks, or of the root or the others."""

    def call(self: "PlannedGroup", tensors: list[Any], opts: Any = None) -> Any:
        opts = opts or options()
        if len(tensors) == 1 and (plan := self._plan_for(collective, tensors[0], tensors[0].numel(), opts)):
            return self._run(plan, Tensors(tensors[0], tensors[0]), opts)
        return getattr(self._wrapped, collective.name)(tensors, opts)

    call.__name__ = collective.name  # as torch calls the method
    return list_arguments(call)


class PlannedGroup(ProcessGroup):  # type: ignore[misc]
    """A process group that runs collectives by plans."""

    def __init__(self, options: Any, group_options: object, settings: BackendSettings, cache: PlanCache) -> None:
        # With the store, which the base class would take too, pybind11 makes an object that cannot be overridden.
        super().__init__(options.group_rank, options.group_size)
        check_process(self)
        _destroyed.clear()
        backends = {device: create_backend(options, "", device, group_options) for device in available_devices()}
        self._wrapped = create_group(options, "", backends)
        register_backends(self, backends)
        self._options = options
        self._ranks = list(options.global_ranks_in_group) or list(range(options.group_size))
        self._devices = tuple(backends)
        self._settings = settings
        self._cache = cache
        self._plan_groups: dict[str, Any] = {}
        self._is_destroyed = False
        self._watch = FailureWatch(cache, self._wrapped, self._devices)
        self.planned: Counter[str] = Counter()
        self.fallback: Counter[str] = Counter()
        if cache.ignored:
            self._warn_once(f"plans in {cache.folder} are ignored: {'; '.join(cache.ignored)}")

    def getBackendName(self) -> str:  # noqa: N802 - torch's name for it.
        """Name of the backend."""
        return "collopt"

    allreduce = in_place(ALLREDUCE, dist.AllreduceOptions)
    broadcast = in_place(BROADCAST, dist.BroadcastOptions)
    reduce = in_place(REDUCE, dist.ReduceOptions)

    def allreduce_coalesced(self, tensors: list[Any], opts: Any = None) -> Any:
        """Reduce several tensors as one."""
        opts = opts or dist.AllreduceCoalescedOptions()
        elements = sum(tensor.numel() for tensor in tensors)
        uniform = are_uniform(tensors, in_size=False)
        if tensors and (plan := self._plan_for(ALLREDUCE, tensors[0], elements, opts, uniform=uniform)):
            buffer = flatten(tensors)
            return self._run(plan, Tensors(buffer, buffer, tensors, partial(unflatten, buffer, tensors)), opts)
        return self._wrapped.allreduce_coalesced(tensors, opts)

    def all_gather_single(self, output: Any, input: Any, opts: Any = None) -> Any:  # noqa: A002
        """Gather into one tensor."""
        opts = opts or dist.AllgatherOptions()
        if plan := self._plan_for(ALLGATHER, output, output.numel(), opts):
            return self._run(plan, Tensors(output, input), opts)
        return self._wrapped._allgather_base(output, input, opts)

    def reduce_scatter_single(self, output: Any, input: Any, opts: Any = None) -> Any:  # noqa: A002
        """Reduce one tensor, and scatter it."""
        opts = opts or dist.ReduceScatterOptions()
        if plan := self._plan_for(REDUCE_SCATTER, input, input.numel(), opts):
            return self._run(plan, Tensors(output, input), opts)
        return self._wrapped._reduce_scatter_base(output, input, opts)

    @list_arguments
    def allgather(self, output_tensors: list[list[Any]], input_tensors: list[Any], opts: Any = None) -> Any:
        """Gather into one tensor per rank."""
        opts = opts or dist.AllgatherOptions()
        outputs, own = output_tensors[0], input_tensors[0]
        elements = sum(tensor.numel() for tensor in outputs)
        uniform = are_uniform([*outputs, own], in_size=True)
        if plan := self._plan_for(ALLGATHER, own, elements, opts, uniform=uniform):
            buffer = torch.empty(elements, dtype=own.dtype, device=own.device)
            return self._run(plan, Tensors(buffer, own, outputs, partial(unflatten, buffer, outputs)), opts)
        return self._wrapped.allgather(output_tensors, input_tensors, opts)

    @list_arguments
    def reduce_scatter(self, output_tensors: list[Any], input_tensors: list[list[Any]], opts: Any = None) -> Any:
        """Reduce one tensor per rank, each to its rank."""
        opts = opts or dist.ReduceScatterOptions()
        inputs, own = input_tensors[0], output_tensors[0]
        elements = sum(tensor.numel() for tensor in inputs)
        uniform = are_uniform([*inputs, own], in_size=True)
        if plan := self._plan_for(REDUCE_SCATTER, own, elements, opts, uniform=uniform):
            return self._run(plan, Tensors(own, flatten(inputs)), opts)
        return self._wrapped.reduce_scatter(output_tensors, input_tensors, opts)

    def all_gather_single_coalesced(self, outputs: list[Any], inputs: list[Any], opts: Any = None) -> Any:
        """Gather several tensors, one after the other."""
        for output, own in zip(outputs, inputs, strict=True):
            self.all_gather_single(output, own, opts).wait()
        return completed_work(outputs)

    def reduce_scatter_single_coalesced(self, outputs: list[Any], inputs: list[Any], opts: Any = None) -> Any:
        """Reduce and scatter several tensors, one after the other."""
        for output, own in zip(outputs, inputs, strict=True):
            self.reduce_scatter_single(output, own, opts).wait()
        return completed_work(outputs)

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
        splits = list(output_split_sizes or ()), list(input_split_sizes or ())
        if any(splits):
            if self._can_exchange(input):
                return self._exchange(Tensors(output, input), splits, opts)
        elif plan := self._plan_for(ALL_TO_ALL, input, input.numel(), opts):
            return self._run(plan, Tensors(output, input), opts)
        return self._wrapped.alltoall_base(output, input, output_split_sizes, input_split_sizes, opts)

    @list_arguments
    def alltoall(self, output_tensors: list[Any], input_tensors: list[Any], opts: Any = None) -> Any:
        """Send every rank a tensor."""
        opts = opts or dist.AllToAllOptions()
        uniform = are_uniform([*output_tensors, *input_tensors], in_size=False)
        if uniform and self._can_exchange(input_tensors[0]):
            buffer, own = (
                output_tensors[0].new_empty(sum(sizes := [tensor.numel() for tensor in output_tensors])),
                flatten(input_tensors),
            )
            done = partial(unflatten, buffer, output_tensors)
            return self._exchange(
                Tensors(buffer, own, output_tensors, done), (sizes, [tensor.numel() for tensor in input_tensors]), opts
            )
        return self._wrapped.alltoall(output_tensors, input_tensors, opts)

    def _can_exchange(self, tensor: Any) -> bool:
        """Whether all-to-alls of unequal parts run in FAST's stages; if not, fall back."""
        boxes = self._cache.boxes
        reason = self._fallback_reason(ALL_TO_ALLV, tensor, None)
        if not reason and isinstance(boxes, str):
            reason = f"its parts may differ, and {boxes}"
        if reason:
            self._fall_back(ALL_TO_ALL, reason)
        return not reason

    def _exchange(self, tensors: Tensors, splits: tuple[list[int], list[int]], opts: Any) -> Any:
        """Run an all-to-all of unequal parts in stages between boxes."""
        group = self.plan_group(tensors.output.device.type)

        def prepare(target: Any, source: Any) -> tuple[Any, Callable[[], None] | None]:
            boxes = self._cache.boxes
            assert not isinstance(boxes, str)  # Or it cannot exchange.
            sizes, nics = boxes
            call = AllToAllCall(target, source, *splits, group, gpus_per_server=sizes, nics=nics or None)
            return all_to_all_single.prepared(call)

        return self._run_prepared(ALL_TO_ALLV, prepare, tensors, opts)

    # What torch before 2.13 calls them.
    _allgather_base = all_gather_single
    _reduce_scatter_base = reduce_scatter_single
    allgather_into_tensor_coalesced = all_gather_single_coalesced
    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced
    alltoall_base = all_to_all_single

    def _plan_for(
        self, collective: Collective, buffer: Any, elements: int, opts: Any, *, uniform: bool = True
    ) -> Plan | None:
        """Choose a plan by values that are equal on all ranks; log the reason if there is none."""
        if not uniform:
            self._fall_back(collective, "its tensors differ in size, type or device")
            return None
        num_bytes = elements * buffer.element_size()
        # Neither Gloo nor NCCL has 16-bit integers.
        is_small = num_bytes < max(1, self._settings.min_bytes) and buffer.dtype != torch.int16
        if self.size() == 1 or is_small:
            self.fallback[collective.name] += 1
            return None
        if self._cache.watches_failures and (problem := self._watch.follow()):
            self._warn_once(problem)
        root = opts.rootRank if collective.has_one_root else None
        reason = self._fallback_reason(collective, buffer, opts)
        request = Request(collective, max(1, num_bytes), root)
        choice = reason or self._cache.find(request)
        if choice is None:
            group = self.plan_group(buffer.device.type)
            half = self._options.timeout.total_seconds() / 2  # Others wait meanwhile.
            choice = run_in_order(group, partial(self._cache.plan_together, request, group, half))
        if isinstance(choice, str):
            self._fall_back(collective, choice)
            return None
        return choice

    def _fallback_reason(self, collective: Collective, buffer: Any, opts: Any) -> str | None:
        """Return why no plan applies, or None."""
        if self._cache.misfit:
            return self._cache.misfit
        if buffer.layout != torch.strided:
            return f"tensors are {buffer.layout}"
        if buffer.device.type not in self._devices:
            return f"tensors are on {buffer.device.type}"
        if collective.reduces:
            kind = opts.reduceOp.op
            op, dtype = REDUCE_OPS.get(kind), str(buffer.dtype).removeprefix("torch.")
            if op is None:
                return f"{str(kind).rpartition('.')[2]} is not supported by plans"
            if dtype not in TYPES[op]:
                return f"{op} is not supported on {dtype} by plans"
        return None

    def _fall_back(self, collective: Collective, reason: str) -> None:
        """Count a call of the wrapped backend, and log the reason once."""
        self.fallback[collective.name] += 1
        self._warn_once(f"{collective} on {self.size()} ranks runs without a plan: {reason}")

    def _warn_once(self, text: str) -> None:
        """Log a text, unless it has been logged; as a warning on one rank."""
        if text not in _logged:
            _logged.add(text)
            logger.log(logging.WARNING if self.rank() == 0 else logging.DEBUG, text)

    def _run(self, plan: Plan, tensors: Tensors, opts: Any) -> Any:
        """Run a plan, asynchronously unless the caller will wait at once."""
        op = REDUCE_OPS[opts.reduceOp.op] if plan.collective.reduces else "sum"
        group = self.plan_group(tensors.output.device.type)
        prepare = partial(execute.prepared, plan, group=group, slices=self._settings.slices, op=op)
        return self._run_prepared(plan.collective, prepare, tensors, opts)

    def _run_prepared(self, collective: Collective, prepare: Callable[..., Any], tensors: Tensors, opts: Any) -> Any:
        """Run a call, and count it."""
        # Older versions of torch do not tell whether the caller waits.
        is_sync = not getattr(opts, "asyncOp", False)
        work = run_prepared(prepare, tensors, synchronous=is_sync)
        self.planned[collective.name] += 1
        return work

    def plan_group(self, device: str | None = None) -> Any:
        """Return the group that plans run on; all ranks call this in the same collective."""
        check_process(self)
        if self._is_destroyed:
            raise UnsupportedError("the group has been destroyed; make another one")
        kind = device if device in self._devices else self._devices[-1]
        if kind not in self._plan_groups:
            self._plan_groups[kind] = create_plan_group(self._options, self._ranks, kind)
        return self._plan_groups[kind]

    def shutdown(self) -> None:
        """Shut down all backends; `destroy_process_group` calls this."""
        self._is_destroyed = True
        while self._plan_groups:
            destroy_plan_group(self._plan_groups.popitem()[1])
        self._wrapped.shutdown()
        # A model that holds this group keeps it alive, and so keeps the plain one.
        finalize(self, _destroyed.append, self._wrapped).atexit = False

    def abort(self) -> None:
        """Abort all communication."""
        self._is_destroyed = True
        for group in self._plan_groups.values():
            group.abort()
        self._wrapped.abort()


def available_devices() -> tuple[str, ...]:
    """Return the device types with a backend: Gloo for the CPU, and NCCL where there are GPUs."""
    there = {"cpu": dist.is_gloo_available(), "cuda": dist.is_nccl_available() and torch.cuda.is_available()}
    if not any(there.values()):
        raise UnsupportedError("this build of torch has neither gloo nor nccl, which the collopt backend wraps")
    return tuple(device for device, is_available in there.items() if is_available)


def create_group(options: Any, prefix: str, backends: dict[str, Any]) -> Any:
    """Create a group of torch's own type `ProcessGroup`."""
    group = dist.ProcessGroup(dist.PrefixStore(prefix, options.store), options.group_rank, options.group_size)
    register_backends(group, backends)
    return group


def register_backends(group: Any, backends: dict[str, Any]) -> None:
    """Register backends by device type; the last one is the default, for calls without tensors."""
    for device, backend in backends.items():
        kind = getattr(dist.ProcessGroup.BackendType, BACKEND_NAMES[device].upper())
        group._set_default_backend(kind)
        group._register_backend(torch.device(device), kind, backend)


def create_backend(options: Any, prefix: str, device: str, nccl_options: object = None) -> Any:
    """Create the backend for one device type, which connects this rank to the others of its group."""
    store = dist.PrefixStore(f"{prefix}{device}/", options.store)
    if device == "cpu":
        backend = dist.ProcessGroupGloo(store, options.group_rank, options.group_size, timeout=options.timeout)
    else:
        nccl = dist.ProcessGroupNCCL
        nccl_settings = nccl_options if isinstance(nccl_options, nccl.Options) else nccl.Options()
        nccl_settings._timeout = options.timeout
        nccl_settings.global_ranks_in_group = options.global_ranks_in_group
        nccl_settings.group_name = f"{options.group_id}{prefix}"
        backend = nccl(store, options.group_rank, options.group_size, nccl_settings)
    backend._set_sequence_number_for_group()
    return backend


def create_plan_group(options: Any, ranks: list[int], device: str) -> Any:
    """Create a second group of the same ranks, for the messages of plans on one device type.

    `new_group` cannot be used: only members call this, and it names groups by counting those of each member, which may
    differ.  So only the entries for sending and receiving are registered with torch; `destroy_plan_group` removes them.
    """
    prefix = "collopt-plans/"
    group = create_group(options, prefix, {device: create_backend(options, prefix, device)})
    group._set_group_name(f"{options.group_id}-{prefix}{device}")
    world = dist.distributed_c10d._world
    world.pg_map[group] = (BACKEND_NAMES[device], options.store)
    world.pg_group_ranks[group] = {rank: at for at, rank in enumerate(ranks)}
    return group


def destroy_plan_group(group: Any) -> None:
    """Shut down a group of `create_plan_group`, and remove it from torch's registry."""
    group.shutdown()
    world = dist.distributed_c10d._world
    world.pg_map.pop(group, None)
    world.pg_group_ranks.pop(group, None)
