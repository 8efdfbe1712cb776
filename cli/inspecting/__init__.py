"""Commands that show, check and convert files: show, report, verify, score, lint, export, import, topologies."""
