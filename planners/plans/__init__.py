"""`Plan`, its verification, its files, and stages of planning."""
