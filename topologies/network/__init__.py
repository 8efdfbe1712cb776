"""`Topology` and what belongs to it: links, costs of runtimes, switches, changes, failures, files."""
