"""The all-to-allv call that is scheduled on the fly."""
