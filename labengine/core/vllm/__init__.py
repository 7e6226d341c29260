"""Decisions of edition vllm that differ from labengine's, one file per part. Source: vLLM 0.32, v1."""
