"""Schedules in steps: breadth-first broadcast (BFB), and tiles, Birkhoff decomposition and stages (FAST)."""
