"""Functions that packages register by entry points, and views of objects that are such functions."""
