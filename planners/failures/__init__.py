"""Plans for networks after failures: what each failure costs, and a folder of plans to pick from."""
