"""Files for size ranges."""
