"""Lowering of schedules to programs."""
