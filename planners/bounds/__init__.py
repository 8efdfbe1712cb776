"""Lower bounds on the time of a collective with a given amount of data."""
