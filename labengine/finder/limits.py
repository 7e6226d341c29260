"""Limits of a search: steps, time, and bytes for a table of states."""

NUM_STEPS = 400
"""Steps after which a run without new requests counts as one without an end; the finder's need some dozens."""
SHRINKING_S = 8.0
"""Seconds for shrinking a finding."""
AFTER_S = 5.0
"""Seconds that a search may take beyond its own, all in all: to play a workload alone, and to end its processes."""
TABLE_BYTES = 2**27
"""Bytes of a complete search's states: a quarter of a process's memory, because tables are copied as they grow."""
