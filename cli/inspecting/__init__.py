"""Commands that show, check and convert files: show, report, verify, lint, export, import, topologies."""
