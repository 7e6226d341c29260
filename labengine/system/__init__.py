"""Interface to the operating system and Python: files, threads, memory, optional packages, places to end code."""
