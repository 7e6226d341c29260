"""The prefix-cache doctor: why prompts miss the prefix cache, what that costs, and what would mend it."""
