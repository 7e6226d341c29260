"""Computes: the models, their paged KV, attention, sampling, and the engine that steps them."""

import os

# Before torch is imported: OpenMP threads that spin while they wait starve each other on few, shared cores.
os.environ.setdefault("GOMP_SPINCOUNT", "0")
