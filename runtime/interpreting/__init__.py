"""Programs on numpy arrays: a reference machine, and checks that nothing can deadlock, race or go astray."""
