"""Columns and values of the arrays of `Code` and `State`, which kernels know as constants."""

NOP, WAIT, SIGNAL, COPY, SUM, JOB = range(6)  # Codes of operations
CODE, BEGIN, SPLIT, END, LAST, RELAXED, SIGNALS, LOOP, PIPED = range(9)  # Columns of operations
RANK, SILENT, BEYOND = range(3)  # Columns of places
AT, SLICE, COUNT, ROW, SYNCED, WAITED = range(6)  # Columns of processes; COUNT: steps, of a proxy jobs, that are done
RUNNABLE, TOKENS, JOBS, NODES, ROWS, PARTS, QUERIES, READERS, FREE, STATUS, WHERE = range(11)  # Of counts
KNOWN, EARLIER, REACHED, PLACE, LATER, WAY, SEGMENT = range(7)  # Columns of queries
READ_WRITE, WRITE_READ, WRITE_WRITE, START_READ, START_WRITE, FINISH = range(6)  # Ways
NO_OTHER_END, BEYOND_END = 1, 2  # Statuses: why a run ended early
