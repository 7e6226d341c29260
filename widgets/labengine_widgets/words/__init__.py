"""Recordings in words: names, runs of events, captions and sentences."""
