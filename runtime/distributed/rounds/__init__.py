"""Programs as rounds of messages."""
