"""Two recordings side by side: aligned events, captions, the first difference, and their widget."""
