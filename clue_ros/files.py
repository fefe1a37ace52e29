# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""Files with a person's words or pictures in them: private to their owner, never half written."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from pathlib import Path

_NO_LOCKS = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS)  # errors of a file system without locks


class FolderLock:
    """One process at a time writes in a folder. The lock ends with the process, killed or not.

    Raises BlockingIOError where another one holds it, and OSError. A file system without locks
    lets everybody in.
    """

    def __init__(self, folder: Path) -> None:
        self._descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                self.release()
                raise

    def release(self) -> None:
        """Let others in. More than once does nothing."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def __del__(self) -> None:
        if hasattr(self, "_descriptor"):
            self.release()


def open_private(path: str, flags: int) -> int:
    """An `opener` for `open`: readable by the owner only (0600), and follows no link."""
    return os.open(path, flags | os.O_NOFOLLOW, 0o600)


def temporary_of(path: Path) -> Path:
    """The file that `replace_file` writes first."""
    return path.with_name(f".{path.name}.tmp")


def replace_file(path: Path, content: bytes) -> None:
    """Write a file so that a reader, or a crash at any moment, finds the old or the new one.

    Raises OSError; the file is then as it was before.
    """
    temporary = temporary_of(path)
    try:
        with open(temporary, "wb", opener=open_private) as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
