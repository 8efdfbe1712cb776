"""Fixed patterns: rings, binary trees, halving-doubling, MultiTree, Blink, FAST on boxes."""
