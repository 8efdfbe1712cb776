"""Maximum concurrent flow with a certified optimality gap, and exact rates of approximate flows."""
