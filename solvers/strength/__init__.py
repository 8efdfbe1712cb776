"""Network strength, orientation of bidirectional links for tree packing, tree centers."""
