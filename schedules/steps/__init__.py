"""`StepSchedule`, `StepAllreduce`, their check, cost and time."""
