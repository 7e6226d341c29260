"""The deciding half of the engine: blocks, hashes, requests, schedules. Standard library only."""

from labengine.system.code_roles import Role, plays

plays(__name__, Role.CORE)
