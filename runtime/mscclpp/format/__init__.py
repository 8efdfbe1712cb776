"""ExecutionPlan, JSON in and out."""
