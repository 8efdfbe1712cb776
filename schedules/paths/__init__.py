"""Routes, congestion, their check, `Direction`."""
