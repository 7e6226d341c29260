"""Files that run in another engine's interpreter: they import that engine and the standard library alone."""
