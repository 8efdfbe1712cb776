"""Maximum concurrent flow with certified gap."""
