"""Files that run in another engine's interpreter and import only that engine and the standard library."""
