"""What a runtime makes of a file."""
