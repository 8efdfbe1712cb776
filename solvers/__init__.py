"""The algorithms: exact max flow, bottleneck search, edge splitting, tree packing."""
