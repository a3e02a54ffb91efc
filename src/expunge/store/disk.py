"""The disk beneath a store: making sure that what was written stays, and whether it is on this machine."""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path

from expunge.base.errors import StoreWarning, warn_caller

MOUNTS = "/proc/self/mountinfo"
REMOTE = {
    *("nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "gluster", "glusterfs", "lustre", "davfs"),
    *("fuse.sshfs", "fuse.s3fs", "fuse.rclone", "fuse.glusterfs", "fuse.ceph", "fuse.gcsfuse", "fuse.davfs2"),
}
"""File systems of other machines."""
_warned: set[str] = set()


def sync(descriptor: int) -> None:
    """Wait until all that was written to a file is on the disk, and not only in the disk's own memory."""
    if sys.platform == "darwin":
        import fcntl

        fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)
    else:
        os.fsync(descriptor)


def sync_file(path: Path) -> None:
    """Do that with a file that nobody holds a POSIX lock on: to close it gives these up."""
    descriptor = os.open(path, os.O_RDWR)  # Windows does not sync what is open for reading only
    try:
        sync(descriptor)
    finally:
        os.close(descriptor)


def sync_folder(folder: Path) -> None:
    """Make it durable which files there are in a folder."""
    if os.name != "posix":
        return
    try:
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP, errno.EACCES):  # not every system lets folders be synced
            raise


def file_system_of(path: Path) -> str:
    """Return the kind of file system that a path lies on, or nothing where that cannot be told."""
    place, found, best = str(path), "", -1
    try:
        with open(MOUNTS, encoding="utf-8", errors="replace") as file:
            lines = file.read().splitlines()
    except OSError:  # as on all systems but Linux
        return ""
    for line in lines:
        before, _, after = line.partition(" - ")
        fields = before.split()
        if len(fields) < 5 or not after:
            continue
        root = fields[4]
        for code, sign in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
            root = root.replace(code, sign)
        root = root.rstrip("/")
        if (place == root or place.startswith(f"{root}/")) and len(root) >= best:  # the last one lies on top
            best, found = len(root), after.split()[0]
    return found


def warn_if_remote(path: Path) -> None:
    """Warn, once for each folder, if a store lies on another machine: locks and syncs may not be what they say."""
    folder = str(path.parent)
    if folder in _warned:
        return
    _warned.add(folder)
    kind = file_system_of(path)
    if kind in REMOTE:
        warn_caller(
            f"{path}: this is on a network file system ({kind}), where locks may not hold and a sync may not reach the "
            "disk. Keep the store on a local disk.",
            StoreWarning,
        )
