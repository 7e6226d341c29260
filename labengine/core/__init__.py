"""The deciding half of the engine: blocks, hashes, requests, schedules. Standard library only."""
