"""Flows in networks: maximum flow, cuts, transport, and multicommodity flows with their paths and chunks."""
