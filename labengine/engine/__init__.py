"""Computes: the models, their paged KV, attention, sampling, and the engine that steps them."""
