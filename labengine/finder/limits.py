"""Limits of a search: steps, time, and bytes for a table of states."""

NUM_STEPS = 400
"""Steps after which a run without new requests counts as endless; the finder's runs need some dozens."""
SHRINKING_S = 8.0
"""Seconds for shrinking a finding."""
AFTER_S = 5.0
"""Seconds that a search may exceed its time by, to play a workload alone and to end its processes."""
TABLE_BYTES = 2**27
"""Most bytes of a complete search's states: a quarter of a process's memory, because growing tables are copied."""
