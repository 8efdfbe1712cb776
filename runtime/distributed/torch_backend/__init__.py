"""Init_process_group("collopt")."""
