"""What every rank does: from schedules to programs of thread blocks and steps."""
