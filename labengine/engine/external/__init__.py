"""The external tier's stores: host memory, disk, loads that come late, and stores that fail on purpose."""

from labengine.engine.external.delayed import Delayed
from labengine.engine.external.disk import DiskStore
from labengine.engine.external.host import HostStore
from labengine.engine.external.spec import open_store
from labengine.engine.external.store import KVStore
from labengine.engine.external.threaded import Threaded

__all__ = ["Delayed", "DiskStore", "HostStore", "KVStore", "Threaded", "open_store"]
