"""`Topology`, its links and what-if changes, `DirectGraph`, and the JSON schema."""
