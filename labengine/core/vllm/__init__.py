"""What edition vllm decides differently from labengine, one file per part. Source: vLLM 0.32, v1."""
