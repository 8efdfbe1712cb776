"""`AllToAllvSchedule` and its two-tier cost."""
