"""The finder on other engines: workloads are played by the engine itself, in its own interpreter, and judged here."""
