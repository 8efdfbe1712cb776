"""Linear programs: the session with HiGHS, exact rational optima, certified intervals, and diagnoses."""
