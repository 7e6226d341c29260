"""Two labs side by side: the same done to both, and where they part."""
