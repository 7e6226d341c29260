"""The kernel sets what it wants of piplite here; nothing reads it."""
