"""Pages: self-contained HTML reports on plans, and the explorer, a page served on this machine."""
