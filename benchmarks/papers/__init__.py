"""Every table and figure of the four papers that a model can recompute: what is printed, what we find, and why."""
