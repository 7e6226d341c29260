"""Limits of a search: steps, time, and bytes for a table of states."""

NUM_STEPS = 400
"""Steps after which a run without new requests counts as endless; the finder's runs need some dozens."""
SHRINKING_TRIES = 10_000
"""Workloads and states tried to shrink a finding: counted, so that it becomes as short on a slow machine. On a fast
one they take up to ten seconds."""
ENDLESS_TRIES = 1_000
"""What a workload that does not return counts for, because it takes a second."""
AFTER_S = 5.0
"""Seconds that a search may exceed its time by, to play a workload alone and to end its processes."""
TABLE_BYTES = 2**27
"""Most bytes of a complete search's states: a quarter of a process's memory, because growing tables are copied."""
