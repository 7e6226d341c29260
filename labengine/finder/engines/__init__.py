"""The finder on other engines: the engine plays workloads in its interpreter, and they are judged here."""
