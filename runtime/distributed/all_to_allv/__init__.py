"""All_to_all_single by FAST."""
