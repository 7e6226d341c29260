"""Decisions of nano-vLLM that differ from the production classes, and those of July 2025 (commit 38baf0b).

The older version hashes at allocation, computes complete prompts, and has a map that never forgets: an entry stays when
its block is reused, and a look-up compares a block's own tokens but not those before them. So an old entry can lead to
a block that holds the same tokens after another prefix, and the request then reads another request's KV. Upstream has
dropped such entries since pull request 218.
"""
