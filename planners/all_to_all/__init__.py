"""All-to-all(v) planners: multicommodity flows, shortest paths, FAST, and dispatches of tokens to experts."""
