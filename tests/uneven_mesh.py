"""A small direct-connect network of unequal links."""

from collopt.topologies import Topology

ROWS = [(rank, rank + 1, 50) for rank in range(9) if rank % 3 < 2]
COLUMNS = [(rank, rank + 3, 25) for rank in range(6)]
UNEVEN_MESH = Topology.from_links(
    [ends for tail, head, width in ROWS + COLUMNS for ends in ((tail, head, width), (head, tail, width))],
    compute=range(9),
    name="uneven mesh",
)
"""3 x 3 ranks with 50 GB/s along rows and 25 GB/s along columns, both ways."""
