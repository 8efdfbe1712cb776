"""Linear programs as arrays, exact rational optimum and certified interval."""
