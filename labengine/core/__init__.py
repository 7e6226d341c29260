"""The part of the engine that decides: blocks, hashes, requests, schedules. Standard library only."""

from labengine.system.code_roles import Role, plays

plays(__name__, Role.CORE)
