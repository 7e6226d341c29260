"""Misses in the large: the prompts that miss for one cause, their examples, and the change that mends it."""
