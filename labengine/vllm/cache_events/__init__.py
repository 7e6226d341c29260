"""The KV events that vLLM and SGLang publish themselves: a view of only the prefix cache, without the tap."""
