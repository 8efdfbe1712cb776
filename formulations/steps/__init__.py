"""Programs of schedules in a given number of steps that wait for each other."""
