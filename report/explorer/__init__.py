"""The explorer of networks: a page, served on this machine, that shows what changes do to bounds and plans."""
