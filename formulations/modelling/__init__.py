"""Modeling layers: Pyomo models, block models over sparse arrays, CVXPY export, and input checks."""
