"""Recordings as bytes: one JSON form of events and states for messages, saved files and exported pages."""
