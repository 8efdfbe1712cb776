"""Times of schedules: their transfers, run event by event with the costs of links and software."""
