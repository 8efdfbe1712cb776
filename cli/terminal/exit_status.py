"""Exit statuses of the program."""

CHECK_FAILED = 1  # A check failed: a plan, file or run is not what it claims to be
UNUSABLE = 2  # The request or the input cannot be used
INTERRUPTED = 130  # Interrupted, as shells have it
