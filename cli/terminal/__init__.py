"""Output to the terminal, and progress."""
