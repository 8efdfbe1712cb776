"""Where nodes and links are drawn."""
