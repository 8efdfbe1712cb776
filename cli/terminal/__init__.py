"""Arguments and options that commands share, their output and progress."""
