"""`Forest`, `Allreduce`, their check."""
