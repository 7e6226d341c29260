"""A running vLLM, and recordings of it: the tap's streams, KV events, whether it conforms, why it misses the cache."""
