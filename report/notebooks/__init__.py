"""What objects show of themselves in notebooks."""
