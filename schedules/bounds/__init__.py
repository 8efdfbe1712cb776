"""`Bound` and its witnesses."""
