"""Execution of programs through torch.distributed: Gloo, NCCL and RCCL by one path.

As Gloo cannot send to its own rank, data that stays is copied.  Batches must not be empty, and the first on a group has
to involve every rank, to which an agreement or all-reduce before it sees.  NCCL ignores tags: messages match in order.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol
from weakref import WeakKeyDictionary

from ...errors import ProgramError, UnsupportedError
from ...schedules import Collective, Schedule
from ...schedules.collective import CollectiveName, as_collective
from ...topologies import Topology
from ..lowering.lower import lower
from ..programs.program import Program
from .agreement import agree, description, explained, first_line, post, tag_of, wait_for_all
from .arguments import Call, combine, divide_average, import_torch, member_rank, p2p_group
from .call_queue import AsyncWork, run_now, start
from .local_ranks import count_call
from .rank_rounds import MAX_ELEMENTS, Copy, Piece, RankRound, RankRounds, packed_rounds, rank_rounds

if TYPE_CHECKING:
    import torch
    import torch.distributed as dist

NO_LIMIT = 2**31 - 1
MAX_KEPT_BYTES = 2**26
_kept: WeakKeyDictionary[dist.ProcessGroup, torch.Tensor] = WeakKeyDictionary()
"""Scratch and staging memory of the last call of each group."""
_lowered: WeakKeyDictionary[Schedule, dict[Collective, tuple[Topology | None, Program]]] = WeakKeyDictionary()


class PlanLike(Protocol):
    """Protocol of plans for `execute`; the topology of a plan that has one gives the order of sends."""

    @property
    def collective(self) -> CollectiveName | Collective: ...  # noqa: D102

    @property
    def schedule(self) -> Schedule: ...  # noqa: D102


def program_of(plan: PlanLike | Program) -> Program:
    """Lower a plan for execution in rounds, once; a program is returned as it is."""
    if isinstance(plan, Program):
        return plan
    if not hasattr(plan, "collective") or not hasattr(plan, "schedule"):
        raise UnsupportedError(f"the plan is a {type(plan).__name__}; expected a Plan or a Program")
    try:
        programs = _lowered.setdefault(plan.schedule, {})
    except TypeError:
        programs = {}
    collective, topology = as_collective(plan.collective), getattr(plan, "topology", None)
    network, program = programs.get(collective, (None, None))
    if program is None or not (network is topology or network == topology):
        # Without thread blocks there is nothing that limits steps or counts.
        program = lower(plan.schedule, collective, max_steps=NO_LIMIT, max_count=NO_LIMIT, topology=topology)
        programs[collective] = topology, program
    return program


def execute(
    plan: PlanLike | Program,
    output: torch.Tensor | None,
    input: torch.Tensor | None,  # noqa: A002 - torch.distributed's own name for it.
    *,
    group: dist.ProcessGroup | None = None,
    timeout: float | None = None,
    slices: int = 1,
    op: str = "sum",
    async_op: bool = False,
) -> AsyncWork | None:
    """Run a plan; every rank of the group calls this with its own tensors and otherwise the same arguments.

    The first call with a plan and size checks the program, and compares the ranks' arguments.  Later calls of the same
    kind are not compared, unless the environment variable ``COLLOPT_DEBUG`` is ``calls``: if the arguments of one rank
    are wrong then, that rank raises at once and the others at the timeout; the error says which ranks are in which
    call, refused their arguments, or gave no sign.  After an error, the outputs are undefined.

    Raises `UnsupportedError` if the plan's schedule cannot be lowered, or the tensors, the operation or the group do
    not fit it; `ProgramError` if the program is wrong, the ranks disagree, or the exchange fails; with `async_op`,
    ``wait()`` raises errors of the exchange.

    Parameters
    ----------
    plan : Plan or Program
        Rank r of the group is compute node r of the plan's topology.
    output, input : torch.Tensor or None
        Contiguous, of one type on one device, with any number of elements.

        As in torch.distributed: *all_gather_into_tensor*, *reduce_scatter_tensor*, *all_reduce*, *broadcast*, *reduce*
        and *all_to_all_single*.  Shares are equal, or by the plan's weights as
        `collopt.runtime.execution.rank_rounds.shard_elements` rounds them; parts of an all-to-all(v) are equal, or
        multiples of the plan's traffic in lowest terms, the same multiple on all ranks, the part that stays included.
        Of a broadcast the input, and of a reduce the output, counts on the root only and may be None elsewhere.

        Both may be the same memory, the smaller being its own part of the larger; not in an all-to-all(v).
    group : torch.distributed.ProcessGroup or None
        None is the default group.  One of the ``collopt`` backend has connections of its own for plans.
    timeout : float or None
        Seconds that one round may take; None leaves it to the process group.  If a rank dies, those that exchange data
        with it raise at once, and all others when this time is over.
    slices : int
        Pieces of the data that follow each other through the network.  More pieces keep more links busy at once and
        cost more batches.
    op : {"sum", "prod", "min", "max", "avg"}
        What adding means; see `collopt.runtime.execution.arguments`.
    async_op : bool
        Return while the data is still on its way.  Each rank may choose for itself.

    Returns
    -------
    AsyncWork or None
        None, or with `async_op` a work with ``wait()``, ``is_completed()`` and ``get_future()``.

    Notes
    -----
    docs/how-to/run-plans.md describes how calls with `async_op` wait for each other, and where their errors are raised.
    """
    call, job = prepared(plan, output, input, group=group, timeout=timeout, slices=slices, op=op, async_op=async_op)
    if async_op:
        outputs, inputs = ([] if tensor is None else [tensor] for tensor in (call.output, call.input))
        return start(call.group, job, outputs, inputs)
    run_now(call.group, job)
    return None


def prepared(
    plan: PlanLike | Program, output: Any, source: Any, *, group: dist.ProcessGroup | None, **options: Any
) -> tuple[Call, Callable[[], None]]:
    """Check the arguments of `execute` on all ranks; return the call and the job that runs it."""
    rank = member_rank(group)
    program = program_of(plan)
    if program.collective.has_one_root and not program.layout.in_pairs and rank != program.layout.root:
        output, source = (None, source) if program.collective.reduces else (output, None)
    call = Call(program, output, source, p2p_group(group, output, source), **options)
    elements, slices = agree(call), call.slices
    key = program, slices, rank, elements
    if not _posts_singly(call):
        work = rank_rounds(*key, areas=1)
    else:
        work = packed_rounds(*key) if elements <= MAX_ELEMENTS else rank_rounds(*key)
    return call, partial(_run, call, rank, work, tag_of(call, elements))


def _run(call: Call, rank: int, work: RankRounds, tag: int) -> None:
    torch, _ = import_torch()
    count_call()
    made_so = any(tensor is not None and tensor.is_inference() for tensor in (call.output, call.input))
    # Tensors that were made in inference mode can be written to in that mode alone; others are to notice that they are.
    with torch.inference_mode() if made_so else torch.no_grad():
        buffer, unused = _kept.pop(call.group, None), call.full_tensor.new_empty(0)
        size = (work.scratch + work.staging) * unused.element_size()
        if buffer is None or buffer.device != unused.device or len(buffer) < size:
            buffer = torch.empty(size, dtype=torch.uint8, device=unused.device)
        own = buffer[:size].view(unused.dtype)
        memory = {"scratch": own[: work.scratch], "staging": own[work.scratch :]}
        for name, tensor in (("output", call.output), ("input", call.input)):
            memory[name] = unused if tensor is None else tensor.detach().view(-1)
        poster = _Poster(call, memory, tag)
        for number, rank_round in enumerate(work.rounds):
            try:
                poster.run(rank_round)
            except (RuntimeError, ValueError) as error:  # The latter if the group has been destroyed meanwhile.
                peers = sorted({peer for peer, _, _ in rank_round.operations})
                raise ProgramError(
                    f"rank {rank} could not finish round {number + 1} of {len(work.rounds)}, in which it exchanges "
                    f"data with ranks {peers}: {first_line(error)}{explained(call.group, description(call))}"
                ) from error
        if call.program.layout.reduces:
            divide_average(call.op, memory["output"], call.program.num_ranks)
    if _posts_singly(call) and not made_so and len(buffer) <= MAX_KEPT_BYTES:
        # New memory takes the system as long as a tenth of the messages; after an error some may still come in here.
        _kept[call.group] = buffer


class _Poster:
    """Posts the messages of rounds: one by one to the backend of a CPU, and in batches elsewhere."""

    def __init__(self, call: Call, memory: dict[str, Any], tag: int) -> None:
        self.call = call
        self.tag = tag
        self.memory = memory
        self.torch, _ = import_torch()
        # As bytes, because no backend carries all element types (Gloo and NCCL have no int16).
        self.bytes = {name: tensor.view(self.torch.uint8) for name, tensor in memory.items()}
        self.element_size = call.full_tensor.element_size()
        self.receiving: dict[int, deque[Any]] = defaultdict(deque)  # Works of receives, by peer
        # Torch's functions for a batch cost more than the messages, several times so where cores are scarce.
        self.backend: Any = call.group._get_backend(call.full_tensor.device) if _posts_singly(call) else None

    def run(self, rank_round: RankRound) -> None:
        """Post a round's messages, run local copies meanwhile, wait, and reduce."""
        self._copy(rank_round.packing)
        if self.backend is None:
            messages = ((peer, is_send, self._bytes(piece)) for peer, is_send, piece in rank_round.operations)
            works = post(self.call.group, self.tag, messages)
        else:
            works = self._post(rank_round)
        self._copy(rank_round.copies)
        wait_for_all(works, self.call.timeout)
        self._copy(rank_round.unpacking)
        for summation in rank_round.sums:
            combine(self.call.op, *map(self._view, summation))

    def _copy(self, copies: Iterable[Copy]) -> None:
        for copy in copies:
            self._view(copy.target).copy_(self._view(copy.source))

    def _view(self, piece: Piece) -> Any:
        return self.memory[piece.memory][piece.begin : piece.end]

    def _bytes(self, piece: Piece) -> Any:
        return self.bytes[piece.memory][piece.begin * self.element_size : piece.end * self.element_size]

    def _post(self, rank_round: RankRound) -> list[Any]:
        """Post receives first, also of later rounds: a sender has to wait for a receiver that is not ready."""
        for peer, _, piece in rank_round.receives:
            self.receiving[peer].append(self.backend.recv([self._bytes(piece)], peer, self.tag))
        return [
            self.backend.send([self._bytes(piece)], peer, self.tag) if is_send else self.receiving[peer].popleft()
            for peer, is_send, piece in rank_round.operations
        ]


def _posts_singly(call: Call) -> bool:
    """Whether messages are posted one by one, and packed if they are small."""
    return bool(call.full_tensor.device.type == "cpu")
