"""Process groups: their ranks and collectives, by hand, from a device mesh, or from a file."""

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod

import numpy as np

from ...errors import ColloptError, FileFormatError, UnsupportedError
from ...schedules import ALL_TO_ALL, TREE_COLLECTIVES, Collective, as_bytes
from ...schedules.collective import as_collective
from ...support.files import read_json
from ...support.validation import as_kind, as_list, as_several, as_whole, shown
from ...topologies import Topology

GROUPS_FORMAT, GROUPS_VERSION = "collopt-groups", 1
FIELDS = {"name", "ranks", "collective", "size", "root"}
MAX_MESH = 2**20


@dataclass(frozen=True)
class Group:
    """Ranks that run one collective at the same time as other groups.

    Attributes
    ----------
    name : str
        Of the group; it also names its file.
    ranks : tuple of int or str
        Numbers or names of compute nodes, in the group's own order.
    collective : str or Collective
        ``"allgather"``, ``"reduce_scatter"``, ``"allreduce"``, ``"broadcast"``, ``"reduce"`` or ``"all_to_all"``.
    size : int or str
        Bytes in all as nccl-tests counts them, such as ``"1G"``; groups share the fabric in proportion.
    root : int or str, optional
        Of a broadcast or reduce: a place in `ranks`, or a name.
    """

    name: str
    ranks: tuple[int | str, ...]
    collective: str | Collective
    size: int | str = 1
    root: int | str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name.replace("-", "").replace("_", "").isalnum():
            raise UnsupportedError(f"the name of a group is {shown(self.name)}; expected letters, digits, - and _ only")
        planned = as_collective(self.collective, (*TREE_COLLECTIVES, ALL_TO_ALL), "groups do not share a fabric for")
        object.__setattr__(self, "collective", planned)
        object.__setattr__(self, "ranks", tuple(as_several(self.ranks, f"the ranks of group {self.name!r}")))
        object.__setattr__(self, "size", as_bytes(self.size))

    @property
    def kind(self) -> Collective:
        """The collective."""
        assert isinstance(self.collective, Collective)
        return self.collective

    def network(self, topology: Topology, *, relay: bool = False) -> Topology:
        """Return the network of its ranks, in which the others may relay; errors name the group."""
        with self.named_in_errors():
            return topology.restrict(self.ranks, relay=relay and len(self.ranks) < topology.num_ranks)

    @contextmanager
    def named_in_errors(self, where: str = "") -> Iterator[None]:
        """Make errors name the group."""
        try:
            yield
        except ColloptError as error:
            raise type(error)(f"group {self.name!r}{where}: {error}") from None


def as_groups(groups: Iterable[Group]) -> tuple[Group, ...]:
    """Check that there are groups, each with a name of its own."""
    group_list = as_list(groups, "the groups")
    if not group_list:
        raise UnsupportedError("there are no groups; expected at least one")
    name, times = Counter(as_kind(group, Group, "a group").name for group in group_list).most_common(1)[0]
    if times > 1:
        raise UnsupportedError(f"group {name!r} is listed twice; every group needs its own name")
    return group_list


def mesh_groups(
    shape: Sequence[int],
    axes: int | Sequence[int],
    collective: str | Collective,
    *,
    size: int | str = 1,
    root: int | None = None,
) -> tuple[Group, ...]:
    """List the groups of a device mesh along one axis or several, as ``init_device_mesh`` of PyTorch numbers ranks.

    Raises `UnsupportedError` for an axis that the mesh does not have, or groups of one rank.

    Parameters
    ----------
    shape : sequence of int
        Such as ``(2, 8)``: rank 8 i + j is at place (i, j).
    axes : int or sequence of int
        Along which the ranks of a group differ.
    collective, size, root
        As for `Group`.

    Examples
    --------
    >>> [group.ranks for group in mesh_groups((2, 3), 0, "allgather")]
    [(0, 3), (1, 4), (2, 5)]
    """
    sides = [as_whole(side, "a side of the mesh", high=MAX_MESH) for side in as_several(shape, "the mesh")]
    group_axes = as_list([axes] if isinstance(axes, int) else axes, "the axes")
    if not sides or prod(sides) > MAX_MESH:
        raise UnsupportedError(
            f"the mesh is {shown(shape)}; expected sides such as (2, 8), of at most {MAX_MESH} ranks"
        )
    if not group_axes or len(set(group_axes)) < len(group_axes) or not set(group_axes) <= set(range(len(sides))):
        raise UnsupportedError(f"the axes are {shown(axes)}; expected some of 0..{len(sides) - 1}, each once")
    if (members := prod(sides[axis] for axis in group_axes)) < 2:
        raise UnsupportedError(f"groups along axes {shown(axes)} of the mesh {shown(shape)} have {members} rank each")
    other_axes = [axis for axis in range(len(sides)) if axis not in group_axes]
    rows = np.arange(prod(sides)).reshape(sides).transpose(*other_axes, *group_axes).reshape(-1, members)
    title = "axis" + "-".join(map(str, group_axes))
    return tuple(
        Group(f"{title}_{number}", tuple(row), collective, size, root) for number, row in enumerate(rows.tolist())
    )


def read_groups(path: str | os.PathLike[str]) -> tuple[Group, ...]:
    """Read groups from a JSON file; ``docs/how-to/plan-groups.md`` describes it."""
    rows = read_json(path, GROUPS_FORMAT, GROUPS_VERSION).get("groups")
    if not isinstance(rows, list) or not rows:
        raise FileFormatError(f"{path}: groups is {shown(rows)}; expected a list of at least one group")
    try:
        for row in rows:
            if not isinstance(row, dict) or not {"name", "ranks", "collective"} <= row.keys() <= FIELDS:
                expected = "an object with name, ranks and collective, and perhaps size and root"
                raise FileFormatError(f"a group is {shown(row)}; expected {expected}")
        return as_groups(Group(**row) for row in rows)
    except ColloptError as error:
        raise FileFormatError(f"{path}: {error}") from None
