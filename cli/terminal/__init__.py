"""Output, progress."""
