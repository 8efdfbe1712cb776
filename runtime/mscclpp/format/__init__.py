"""`ExecutionPlan`, its JSON writer, reader and checks."""
