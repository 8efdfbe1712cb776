"""Reference machine, checks, findings."""
