"""Max flow (Dinic), push-relabel, all sinks, transport."""
