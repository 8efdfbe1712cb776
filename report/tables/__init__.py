"""Tables and summaries of plans."""
