"""What several commands take."""
