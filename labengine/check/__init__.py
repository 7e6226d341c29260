"""Checks: invariants of the state, rules on a step, and the oracle that knows each slot's content."""

from labengine.system.code_roles import Role, plays

plays(__name__, Role.FOLLOWS_EVENTS)
