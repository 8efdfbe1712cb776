"""Input validation, quantities with units, file access, formatting, progress reports and the random seed."""
