"""Linear programs as arrays; exact optimum and certified interval."""
