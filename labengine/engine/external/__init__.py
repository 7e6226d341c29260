"""Stores of the external tier: host memory, disk, asynchronous loads, and stores that fail on purpose."""

from labengine.engine.external.disk import DiskStore
from labengine.engine.external.host import HostStore
from labengine.engine.external.late import Delayed, Threaded
from labengine.engine.external.spec import open_store
from labengine.engine.external.store import KVStore

__all__ = ["Delayed", "DiskStore", "HostStore", "KVStore", "Threaded", "open_store"]
