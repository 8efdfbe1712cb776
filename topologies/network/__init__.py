"""`Topology`, its links, costs of runtimes, switches, changes, failures and files."""
