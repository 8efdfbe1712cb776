"""Running plans with torch.distributed and JAX: processes, calls, rounds of messages, the backend, functions."""
