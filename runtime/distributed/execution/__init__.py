"""Execute, launch, compare with torch."""
