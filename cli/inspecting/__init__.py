"""Show, report, verify, lint, export, import, topologies."""
