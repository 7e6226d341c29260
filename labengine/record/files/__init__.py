"""Recordings as bytes: one JSON form of events and states for messages, saved files and exported pages."""

from labengine.system.code_roles import Role, plays

plays(__name__, Role.FOLLOWS_EVENTS)
