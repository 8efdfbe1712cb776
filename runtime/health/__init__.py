"""Health of a machine's links: what speed to expect, what to measure, and what a slow result means."""
