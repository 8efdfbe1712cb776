"""Networks without switches: breadth-first broadcast, and the topology finder."""
