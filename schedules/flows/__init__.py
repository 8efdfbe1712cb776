"""`FlowSchedule`."""
