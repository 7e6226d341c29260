"""The KV events that vLLM and SGLang publish by themselves: a view of the prefix cache alone, without the tap."""
