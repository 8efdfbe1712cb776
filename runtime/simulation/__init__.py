"""Event-driven simulation of plans."""
