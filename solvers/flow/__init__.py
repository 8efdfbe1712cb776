"""Integer maximum flow: Dinic, push-relabel, sweeps over all sinks, transportation plans, flow rounding."""
