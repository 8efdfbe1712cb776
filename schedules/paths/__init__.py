"""`Schedule`, routes and their check, congestion."""
