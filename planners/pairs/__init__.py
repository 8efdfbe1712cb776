"""All-to-all(v): multicommodity, shortest paths, FAST."""
