"""`Forest`, `Allreduce` and their check."""
