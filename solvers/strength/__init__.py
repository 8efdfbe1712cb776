"""Network strength, orientation, tree centers."""
