"""Who could have written a file of code: nothing is loaded that another user could have put there.

Owner and mode are POSIX's. On Windows nothing is distrusted: there the rights of the user's profile keep others out.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

HAS_OWNERS = os.name == "posix"
"""True where a file's owner and mode tell who can write to it."""


def folder_distrust(folder: Path) -> str | None:
    """Return why another user could put files into `folder`, or replace it; None where none could.

    folder: without links (Path.resolve). Root does not count as another user. Raises OSError.
    """
    if not HAS_OWNERS:
        return None
    for place in (folder, *folder.parents):
        status = place.stat()
        if status.st_uid not in (os.geteuid(), 0):
            return f"{place} belongs to another user"
        is_sticky = bool(status.st_mode & stat.S_ISVTX) and place != folder  # in /tmp, what is mine stays mine
        if _others_can_write(status) and not is_sticky:
            return f"{place} can be written to by other users (chmod go-w {place})"
    return None


def file_distrust(status: os.stat_result) -> str | None:
    """Return why another user could have written this file, which is in a trusted folder; None where none could."""
    if not stat.S_ISREG(status.st_mode):
        return "it is no regular file"
    if not HAS_OWNERS:
        return None
    if status.st_uid != os.geteuid():
        return "it belongs to another user"
    return "it can be written to by other users" if _others_can_write(status) else None


def _others_can_write(status: os.stat_result) -> bool:
    for_all, for_group = status.st_mode & stat.S_IWOTH, status.st_mode & stat.S_IWGRP
    return bool(for_all or (for_group and not _is_private(status.st_gid)))


def _is_private(group_id: int) -> bool:
    """Return True for a group whose only member is the user, as many systems create it."""
    import grp
    import pwd

    try:
        user, group = pwd.getpwuid(os.geteuid()), grp.getgrgid(group_id)
    except KeyError:
        return False
    return user.pw_gid == group_id and user.pw_name == group.gr_name and set(group.gr_mem) <= {user.pw_name}


def installed_distrust(status: os.stat_result, code: os.stat_result) -> str | None:
    """Return why a user who cannot write the package's code could have written a file (or folder); None if none could.

    code: a Python file (or folder) of the installed package, which runs in any case.
    """
    if not HAS_OWNERS:
        return None
    if status.st_uid not in (code.st_uid, os.geteuid(), 0):
        return "it belongs to another user than the package"
    writers, writers_of_code = (found.st_mode & (stat.S_IWGRP | stat.S_IWOTH) for found in (status, code))
    if writers & ~writers_of_code or (writers & stat.S_IWGRP and status.st_gid != code.st_gid):
        return "it can be written to by more users than the package"
    return None
