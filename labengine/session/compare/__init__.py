"""Two labs side by side, which get the same calls, and the first difference between them."""
