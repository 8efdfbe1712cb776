"""Running plans with torch.distributed: processes, calls, rounds of messages, the backend."""
