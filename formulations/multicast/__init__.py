"""Programs of multicasts between servers of several GPUs."""
