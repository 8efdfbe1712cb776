"""From Program to ExecutionPlan."""
