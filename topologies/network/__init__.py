"""`Topology`, its links, what-if changes, `DirectGraph`, schema."""
