"""Recordings as bytes: one JSON form of events and states for the wire, for saved files and for exported pages."""
