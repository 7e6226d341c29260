"""The computing half of the engine: models, paged KV, attention, sampling, and the engine that steps them."""
