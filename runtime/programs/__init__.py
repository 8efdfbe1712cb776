"""Programs of thread blocks and steps: types, order, channels, checks, the reference interpreter and findings."""
