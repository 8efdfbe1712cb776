"""What a plan takes on its network, event by event."""
