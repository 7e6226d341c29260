"""Two labs side by side, driven by the same acts, and the first difference between them."""
