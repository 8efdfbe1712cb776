"""`StepSchedule`, `StepAllreduce`, check, cost, time."""
