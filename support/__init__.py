"""Checks of input, units and words, files, progress, seed: what every layer needs and none owns."""
