"""What the operating system and Python ask for: files, threads, memory, optional packages, where code may be ended."""
