"""Integer maximum flow and bottleneck cuts: Dinic, push-relabel, sweeps over all sinks, transportation plans."""
