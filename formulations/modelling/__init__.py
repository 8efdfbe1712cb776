"""Pyomo, blocks, CVXPY, checks."""
