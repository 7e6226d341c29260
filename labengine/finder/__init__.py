"""The finder: the shortest workload on which parts go wrong."""
