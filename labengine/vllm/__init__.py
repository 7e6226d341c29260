"""A running vLLM and recordings of it: the tap's streams, KV events, conformance, and causes of cache misses."""
