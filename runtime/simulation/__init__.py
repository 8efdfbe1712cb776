"""Event-driven simulation of plans, and Chakra traces for other simulators."""
