"""Settings of groups of the ``collopt`` backend, their plans, and the switch to other plans after failures.

Every rank makes small plans itself, alike; the first rank of a group makes others while the rest wait.
"""

import hashlib
import json
import os
import stat
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from ..errors import ColloptError, FileFormatError, ProgramError, TopologyError, UnsupportedError
from ..planners import Plan, load_plan, plan
from ..planners.literature.fast import boxes_of, nic_rates
from ..planners.literature.routes import Hops
from ..planners.plans.files import plan_from_json
from ..planners.trees.problem import check_reachable, tree_problem
from ..planners.what_if.folder import INDEX, PlanFolder
from ..schedules import ALLGATHER, Collective, as_bytes
from ..schedules.collective import as_collective
from ..support.files import MAX_BYTES, name_of, read_bytes
from ..support.validation import shown
from ..topologies import Topology, read_topology
from ..topologies.network.failures import Failure
from .execution.agreement import PLANNING, agree_on, digest, first_line, gathered
from .execution.arguments import import_torch
from .execution.execute import program_of
from .execution.local_ranks import run_ranks
from .programs.program import check_counts

PLANS_VARIABLE = "COLLOPT_PLANS"
TOPOLOGY_VARIABLE = "COLLOPT_TOPOLOGY"
FAILURE_VARIABLES = ("COLLOPT_FAILURES", "COLLOPT_FAILURES_FILE")
"""What has failed, and a file that says so, which may change while ranks run; `Failure` has the form."""
MAX_FAILURE_BYTES = 2**16
NOT_A_FILE = f"what {FAILURE_VARIABLES[1]} names, which is no regular file,"
FAILURE_CALLS = 16  # Calls from one comparison of the ranks' failures to the next
MAX_OWN_WORK = 2**18  # Ranks times squared links, up to which each rank plans in about a second
PLANNING_S = 60.0  # For all others: a rank that waits longer may be taken for lost
AGREED = "fine"
REFUSED_PREFIX = "refused: "
PathLike: TypeAlias = str | os.PathLike[str]


def told_failures() -> str:
    """Return the failures that this rank is told of now, one in a line."""
    listed, path = map(os.environ.get, FAILURE_VARIABLES)
    file_text = ""
    if path:
        try:
            is_regular = stat.S_ISREG(Path(path).stat().st_mode)  # Others, such as pipes, may block all ranks.
            file_text = read_bytes(path, MAX_FAILURE_BYTES).decode(errors="replace") if is_regular else NOT_A_FILE
        except FileNotFoundError:
            pass
        except (OSError, FileFormatError) as error:
            file_text = str(error)  # It is refused later, as it is not the name of a failure.
    lines = (line.strip() for line in f"{listed or ''}\n{file_text}".splitlines())
    return "\n".join(dict.fromkeys(filter(None, lines)))


@dataclass(frozen=True)
class BackendSettings:
    """Settings of a group, `plans`, `topology`, `slices` and `min_bytes` as in `configure`; checked when it is made."""

    plans: PathLike | None = None
    topology: Topology | PathLike | None = None
    slices: int = 1
    min_bytes: int = 0


_configured: list[BackendSettings] = []


def configure(
    *,
    plans: PathLike | None = None,
    topology: Topology | PathLike | None = None,
    slices: int = 1,
    min_bytes: int | str = 0,
) -> BackendSettings:
    """Set where the ``collopt`` backend gets its plans, for all groups that are made from now on.

    All ranks have to give the same settings; the defaults are the environment variables ``COLLOPT_PLANS`` and
    ``COLLOPT_TOPOLOGY``.  The result can also be given to one group as its ``pg_options``.  Raises `UnsupportedError`
    for other arguments than those below.

    Parameters
    ----------
    plans : path, optional
        Folder of files ``*.json`` that `Plan.save` wrote, for any collectives and numbers of ranks.  Of those that suit
        a call, the one with the least predicted time at its size is taken; those of collectives that the backend does
        not run, or that are not registered, are ignored with a warning.
    topology : Topology or path, optional
        Network of a group of as many ranks, for which plan files for as many ranks have to be.  If that is all ranks,
        other groups have their ranks' part of it.  A collective without a plan is planned when it is first called.
    slices : int
        See `collopt.runtime.execute`.
    min_bytes : int or str
        Bytes of the whole collective, such as ``"64K"``, below which the wrapped backend is used.

    Examples
    --------
    >>> from collopt.topologies import ring
    >>> configure(topology=ring(4, bandwidth=25), min_bytes="64K").min_bytes
    65536
    """
    settings = _checked(BackendSettings(plans, topology, slices, min_bytes))  # type: ignore[arg-type]  # or text
    _configured[:] = [settings]
    return settings


def _checked(settings: BackendSettings) -> BackendSettings:
    """Return the settings with `min_bytes` as a number; `UnsupportedError` if a value is invalid."""
    for name, value in (("plans", settings.plans), ("topology", settings.topology)):
        if value is not None and not isinstance(value, (str, os.PathLike)):
            if name == "topology" and isinstance(value, Topology):
                continue
            raise UnsupportedError(f"{name} is {shown(value)}; expected a path{' or a Topology' * (name != 'plans')}")
    check_counts({"slices": settings.slices})
    return replace(settings, min_bytes=as_bytes(settings.min_bytes, "min_bytes", low=0))


def settings_of(options: object) -> BackendSettings:
    """Return the settings of a group with these ``pg_options``: them, those configured, or those of the environment."""
    if isinstance(options, BackendSettings):
        settings = _checked(options)
    elif _configured:
        settings = _configured[0]
    else:
        settings = BackendSettings(os.environ.get(PLANS_VARIABLE) or None, os.environ.get(TOPOLOGY_VARIABLE) or None)
    if settings.plans is None and settings.topology is None:
        raise UnsupportedError(
            f"the collopt backend has neither plans nor a topology; set {PLANS_VARIABLE} to a folder of plan files, or "
            "call collopt.runtime.backend.configure before init_process_group"
        )
    if settings.plans is not None and not Path(settings.plans).is_dir():
        raise UnsupportedError(f"plans is {shown(str(settings.plans))}; expected a folder with plan files in it")
    return settings


def compare_digests(store: Any, rank: int, size: int, digest: str | ColloptError) -> None:
    """Compare the ranks' digests through the store; raise on every rank if they differ or one rank has an error."""
    own = f"{REFUSED_PREFIX}{digest}" if isinstance(digest, ColloptError) else digest
    try:
        # A store may have seen a group of the same name, which was destroyed.
        name = f"collopt-{store.add(f'collopt-turn-{rank}', 1)}"
        store.set(f"{name}-{rank}", own)
        if rank == 0:
            store.set(f"{name}-verdict", _verdict([store.get(f"{name}-{peer}").decode() for peer in range(size)]))
        verdict = store.get(f"{name}-verdict").decode()
    except RuntimeError as error:
        verdict = f"the ranks could not compare their plans: {first_line(error)}"
    if isinstance(digest, ColloptError):
        raise digest
    if verdict != AGREED:
        raise ProgramError(verdict)


def _verdict(digests: list[str]) -> str:
    if refusing := [rank for rank, text in enumerate(digests) if text.startswith(REFUSED_PREFIX)]:
        return f"rank {refusing[0]} has {digests[refusing[0]]}"
    if strays := [rank for rank, text in enumerate(digests) if text != digests[0]]:
        lines = set(digests[0].splitlines()) ^ set(digests[strays[0]].splitlines())
        names = sorted({line.partition(" ")[2] for line in lines} - {""})
        return (
            f"ranks 0 and {strays[0]} have different plans or settings for the collopt backend"
            f"{f' ({names[0]})' if names else ''}; give all ranks the same files and the same arguments of configure"
        )
    return AGREED


class Request(NamedTuple):
    """A call to find a plan for; `num_bytes` are those of all shards."""

    collective: Collective
    num_bytes: int
    root: int | None


@lru_cache(maxsize=8)
def _verified_folder(folder: Path, num_ranks: int, digests: tuple[str, ...]) -> PlanFolder:  # noqa: ARG001 - in the key
    """Verify the plans of a folder of `survive` once for all groups of a process, as long as its files are the same."""
    plans = PlanFolder(folder)
    plans.load(num_ranks)
    return plans


def misalignment(ranks: Sequence[int]) -> str | None:
    """Return why the ranks of a group are not an aligned block of consecutive ranks, or None if they are."""
    start, size = next(iter(ranks), 0), len(ranks)
    if list(ranks) == list(range(start, start + size)) and start % max(size, 1) == 0:
        return None
    some = ", ".join(map(str, ranks[:3])) + ", …" * (size > 3)
    return (
        f"the group of ranks {some} is no run of {size} consecutive ones that starts at a multiple of {size}, and the "
        f"network of all ranks is not given; set {TOPOLOGY_VARIABLE} to it"
    )


class PlanCache:
    """The plans for a group: loaded from a folder, or planned on first use; after a `failure`, others.

    `ranks` are those of the group among all, of which there are `world_size`.
    """

    def __init__(
        self, settings: BackendSettings, num_ranks: int, ranks: Sequence[int] = (), world_size: int = 0
    ) -> None:
        self.num_ranks = num_ranks
        self.slices = settings.slices
        self.folder = None if settings.plans is None else Path(settings.plans)
        topology = settings.topology
        self.topology = topology if topology is None or isinstance(topology, Topology) else read_topology(topology)
        self._other_sizes: set[int] = set()
        watches = any(map(os.environ.get, FAILURE_VARIABLES))
        self._digests = [_digest_line(f"{settings.slices} {settings.min_bytes} {watches}".encode())]
        self._folder = PlanFolder(self.folder) if self.folder and (self.folder / INDEX).exists() else None
        if self._folder is not None:
            if self.topology is not None and self.topology.digest != self._folder.topology.digest:
                raise TopologyError(f"{self.folder} has plans for another network than {_description(self.topology)}")
            self.topology = self._folder.topology
        if self.topology is not None:
            self._digests.append(_digest_line(self.topology.digest.encode(), "the topology"))
        self._ranks = ranks
        self._part: tuple[str, ...] = ()  # Names of the ranks of a group that has a part of the network
        self._intact, self.misfit = self.topology, misalignment(ranks)
        if self.topology is not None and 1 < num_ranks == len(ranks) < world_size == self.topology.num_ranks:
            self._part = tuple(self.topology.compute_nodes[rank] for rank in ranks)
            self.topology, self.misfit = self.topology.restrict(self._part), None
        self.ignored: list[str] = []
        self._plans = [] if self.folder is None else self._load(self.folder)
        self._planned_here: dict[tuple[Collective, int | None], Plan | str] = {}
        self._fastest_cached = lru_cache(maxsize=4096)(self._fastest)
        self._known, self.failure = self.topology, Failure()
        if self._plans and not self._part:
            self._intact = self._plans[0][1].topology
        size = len(self._part) or (self._intact.num_ranks if self._intact else 0)
        self.watches_failures = watches and size == num_ranks

    @property
    def digest(self) -> str:
        """Equal on ranks that have the same plans and settings, of which each has a line."""
        return "\n".join(self._digests)

    def find(self, request: Request) -> Plan | str | None:
        """Return the plan for a call, the reason why there is none, or None if the ranks have to `plan_together`."""
        suitable = [] if self.failure.faults else self._suitable(request.collective, request.root)
        if len(suitable) > 1:
            return self._fastest_cached(request)
        if suitable:
            return suitable[0]
        if self.topology is None or self.topology.num_ranks != self.num_ranks:
            return self._missing_reason(request)
        key = request.collective, request.root
        if key not in self._planned_here:
            choice = self._picked(*key)
            if choice is None and self.num_ranks * self.topology.num_links**2 > MAX_OWN_WORK:
                return None
            self._planned_here[key] = choice or self._planned(*key)
        return self._planned_here[key]

    def plan_together(self, request: Request, group: Any, timeout_s: float) -> Plan | str:
        """Plan on the first rank, for at most `timeout_s`, and return the plan or the reason; all ranks call this.

        The plan is made in a process of its own, which can be stopped, and verified by each rank.
        """
        assert self.topology is not None  # `find` has looked.
        torch_distributed = import_torch()[1]
        store = torch_distributed.distributed_c10d._get_process_group_store(group)
        collective, root = key = request.collective, request.root
        agree_on(PLANNING, {"the collective": collective, "the root": root}, [], group, None)
        place = f"collopt-plan-{collective}-{root}-{self.topology.digest}"
        if torch_distributed.get_rank(group) == 0:
            store.set(place, _plan_text(self.topology, collective, root, min(timeout_s, PLANNING_S)))
        gathered([0], group, None, PLANNING)
        text = store.get(place).decode()
        choice: Plan | str = text.removeprefix(REFUSED_PREFIX)
        if choice == text:
            choice = plan_from_json(json.loads(text), "the plan of the group's first rank")
            choice.verify(self.topology)
        self._planned_here[key] = choice
        return choice

    def switch(self, failures: str) -> None:
        """Plan for the network after failures, one in a line; raise `ColloptError` if the ranks cannot go on."""
        assert self._intact is not None  # Or it would not watch failures.
        failure = Failure.read(self._intact, failures.splitlines())
        left = failure.applied(self._intact)
        remaining = len({*left.compute_nodes} & {*(self._part or self._intact.compute_nodes)})
        if remaining != self.num_ranks:
            raise UnsupportedError(f"{failure} leaves {remaining} of {self.num_ranks} ranks; start the job without it")
        if self._part:
            left = left.restrict(self._part)
        check_reachable(left, ALLGATHER)
        self.failure, self.topology = failure, left if failure.faults else self._known
        self._planned_here.clear()
        self.__dict__.pop("boxes", None)

    @cached_property
    def boxes(self) -> tuple[tuple[int, ...], tuple[tuple[Fraction, ...], ...]] | str:
        """GPUs of each box, a run of ranks, and the rates of their NICs where these differ; or why there are none."""
        network = self.topology if self.failure.faults or not self._plans else self._plans[0][1].topology
        if network is None or network.num_ranks != self.num_ranks:
            return "the network of as many ranks is not known; give configure a topology"
        try:
            hops = Hops(tree_problem(network, "broadcast", ()))
            boxes = boxes_of(hops)
        except ColloptError:
            return f"{network.name} has not several boxes in which GPUs reach each other directly"
        if np.concatenate(boxes).tolist() != list(range(self.num_ranks)):
            return f"the boxes of {network.name} are not runs of consecutive ranks"
        rates = nic_rates(hops, boxes)
        if lost := [box for box, row in enumerate(rates) if not any(row)]:
            return f"box {lost[0]} of {network.name} reaches no others"
        return tuple(map(len, boxes)), rates

    def _load(self, folder: Path) -> list[tuple[str, Plan]]:
        """Read all plans of the folder; keep those for as many ranks of collectives that the backend runs."""
        paths = sorted(folder.glob("*.json"))
        if not paths:
            raise FileFormatError(f"{folder} has no plan files; expected some called *.json, as Plan.save writes them")
        kept: list[tuple[str, Plan]] = []
        for path in paths:
            self._digests.append(_digest_line(read_bytes(path, MAX_BYTES), name_of(path.name)))
            if self._folder is not None:
                continue
            try:
                candidate = load_plan(path)
            except UnsupportedError as error:  # such as of a collective that nobody registered
                self.ignored.append(f"{path.name}: {str(error).removeprefix(f'{path}: ')}")
                continue
            if candidate.collective.parts_differ:
                self.ignored.append(f"{path.name}: calls of {candidate.collective} are not run by plans")
            elif candidate.topology.num_ranks != self.num_ranks:
                self._other_sizes.add(candidate.topology.num_ranks)
            else:
                kept.append((path.name, candidate))
        if self._folder is not None:
            self._folder = _verified_folder(folder, self.num_ranks, tuple(self._digests))
        return self._of_one_network(kept)

    def _of_one_network(self, plans: list[tuple[str, Plan]]) -> list[tuple[str, Plan]]:
        """Refuse plans for different networks; where a group has a part of one, those are of other groups."""
        topology = self.topology
        if self._part and topology is not None:
            own = [pair for pair in plans if pair[1].topology.digest == topology.digest]
            is_one = len({candidate.topology.digest for _, candidate in plans}) == 1
            return own or (plans if is_one and misalignment(self._ranks) is None else [])
        networks = [(name, candidate.topology) for name, candidate in plans]
        if topology is not None and topology.num_ranks == self.num_ranks:
            networks.insert(0, ("the topology given", topology))
        for name, network in networks[1:]:
            if network.digest != networks[0][1].digest:
                raise TopologyError(
                    f"{name} is for another network of {self.num_ranks} ranks, {_description(network)}, than "
                    f"{networks[0][0]}, {_description(networks[0][1])}; keep the plans for one network in a folder"
                )
        return plans

    def _suitable(self, collective: Collective, root: int | None) -> list[Plan]:
        return [candidate for candidate, of_root in self._lowered.get(collective, ()) if of_root == root]

    @cached_property
    def _lowered(self) -> dict[Collective, list[tuple[Plan, int | None]]]:
        """Plans with equal shards that can be lowered, and their roots."""
        plans: dict[Collective, list[tuple[Plan, int | None]]] = {}
        for _, candidate in self._plans:
            try:
                layout = program_of(candidate).layout
            except ColloptError:
                continue
            if not candidate.collective.is_sharded or len(set(layout.shards)) == 1:
                plans.setdefault(candidate.collective, []).append((candidate, layout.root))
        return plans

    def _fastest(self, request: Request) -> Plan:
        """Choose the plan with the least predicted time; ties go to the first file name."""
        size, slices = request.num_bytes, self.slices
        suitable = self._suitable(request.collective, request.root)
        return min(
            suitable, key=lambda candidate: candidate.estimate(size, slices if candidate.schedule.num_trees else None)
        )

    def _planned(self, collective: Collective, root: int | None) -> Plan | str:
        assert self.topology is not None  # `find` has looked.
        try:
            new_plan = plan(self.topology, collective, root=root)
            program_of(new_plan)
        except ColloptError as error:
            return f"no plan of it can be made or run on {self.topology.name}: {error}"
        return new_plan

    def _picked(self, collective: Collective, root: int | None) -> Plan | None:
        """Pick the plan after the failure from the folder, if that has one."""
        if self._folder is None or self._part or self._folder.root != root:
            return None
        try:
            return self._folder.pick(self.failure, collective)
        except ColloptError:  # The same on all ranks: what the folder holds was read when the cache was made.
            return None

    def _missing_reason(self, request: Request) -> str:
        """Return why no plan was found, and which plans there are."""
        where = "the topology given" if self.folder is None else str(self.folder)
        pairs = [(collective, root) for collective, plans in self._lowered.items() for _, root in plans]
        if pairs:
            names = ", ".join(sorted({collective.name + _root_text(root) for collective, root in pairs}))
            return f"{where} has no plan of it{_root_text(request.root)}; those that can be run here are of {names}"
        sizes = self._other_sizes | ({self.topology.num_ranks} if self.topology else set())
        other_sizes = ", ".join(map(str, sorted(sizes - {self.num_ranks})))
        return f"{where} has nothing that can be run on {self.num_ranks} ranks" + (
            f", only for {other_sizes}" if other_sizes else ""
        )


def _plan_text(network: Topology, collective: Collective, root: int | None, seconds: float) -> str:
    """Plan in a process of its own, within some seconds; return the plan as JSON, or the marked reason of none."""
    start = time.monotonic()
    try:
        [text] = run_ranks(partial(_plan_alone, network, collective.name, root), 1, timeout_s=seconds)
    except Exception as error:  # noqa: BLE001 - whatever is wrong, the other ranks have to be told.
        reason = first_line(error)
        if time.monotonic() - start >= seconds:
            reason = f"that takes more than {seconds:g} s; save the plan, as collopt plan does, and name its folder"
        return f"{REFUSED_PREFIX}no plan of it is made on {network.name}: {reason}"
    return text


def _plan_alone(network: Topology, collective: str, root: int | None, _rank: int, _folder: str) -> str:
    new_plan = plan(network, as_collective(collective), root=root)
    program_of(new_plan)
    return json.dumps(new_plan.to_json())


def _digest_line(content: bytes, name: str = "") -> str:
    return f"{hashlib.sha256(content).hexdigest()} {name}"


def _root_text(root: int | None) -> str:
    return "" if root is None else f" with root {root}"


def _description(topology: Topology) -> str:
    """Name a network with its digest."""
    return f"{topology} (digest {topology.digest[:12]})"


class FailureWatch:
    """What the ranks of a group are told of failures, compared over `wrapped`, whose calls run in order."""

    def __init__(self, cache: PlanCache, wrapped: Any, devices: Sequence[str]) -> None:
        self._cache, self._wrapped = cache, wrapped
        self._device = "cpu" if "cpu" in devices else devices[0]
        self._calls, self._told = 0, ""

    def follow(self) -> str:
        """Switch plans once all ranks are told the same; return why not, or nothing.  All ranks make the same calls."""
        self._calls += 1
        if self._calls % FAILURE_CALLS != 1:
            return ""
        failures = told_failures()
        problem = ""
        if not self._is_same(digest(failures.encode())):
            problem = "ranks are told of different failures"
        elif failures != self._told:
            self._told = failures
            try:
                self._cache.switch(failures)
            except ColloptError as error:
                problem = str(error)
        return problem and f"{problem}; the plans stay those for {self._cache.failure}"

    def _is_same(self, number: int) -> bool:
        """Whether all ranks have this number: then it is the least of all, and the most."""
        torch, dist = import_torch()
        extremes = torch.tensor([number, -number], dtype=torch.int64, device=self._device)
        opts = dist.AllreduceOptions()
        opts.reduceOp = dist.ReduceOp.MIN
        self._wrapped.allreduce([extremes], opts).wait()
        return bool(extremes.tolist() == [number, -number])
