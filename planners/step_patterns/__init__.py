"""Algorithms of the literature and of libraries by their names, to compare with: most of them in steps."""
