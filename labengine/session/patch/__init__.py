"""Overrides made from one method: finding the seam, making the class, and running the same workload on it."""
