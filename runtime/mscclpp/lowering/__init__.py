"""Lowering of a `Program` to an `ExecutionPlan`."""
