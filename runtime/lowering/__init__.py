"""From schedules to programs."""
