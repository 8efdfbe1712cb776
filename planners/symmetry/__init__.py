"""Trees of a few representative roots whose images under symmetries of the network are all trees."""
