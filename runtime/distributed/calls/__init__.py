"""Arguments, agreement, asynchronous calls."""
