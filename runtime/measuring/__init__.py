"""Plans measured beside the backend, as nccl-tests does."""
