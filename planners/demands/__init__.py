"""Any demands: trees by column generation, their bound, and what others do for them."""
