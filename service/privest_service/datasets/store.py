"""Rows on disk, one float64 npy file for each dataset in a folder for each owner; permits to read them."""

import os
import shutil
import time
from pathlib import Path
from tempfile import TemporaryFile

_LONGEST_UPLOAD = 24 * 3600.0
"""Seconds that an upload can take at most."""


class Store:
    """Files under one directory. A dataset's file appears whole, at once, or not at all."""

    def __init__(self, root: Path) -> None:
        self._root = root.resolve()
        self._rows = self._root / "rows"
        self.incoming = self._root / "incoming"
        """Where uploads stay until they are validated; on the same file system as the rows."""
        self._permits = self._root / "permits"
        for folder in (self._rows, self.incoming, self._permits):
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        _sync(self._root)
        for left in self.incoming.iterdir():
            # What a killed service left behind; another replica's uploads are younger.
            if time.time() - left.stat().st_mtime > _LONGEST_UPLOAD:
                _remove(left)

    def path(self, owner_id: str, dataset_id: str) -> Path:
        """The file of a dataset's rows."""
        return self._rows / owner_id / f"{dataset_id}.npy"

    def adopt(self, draft: Path, owner_id: str, dataset_id: str) -> None:
        """Move validated rows to their place, durably."""
        path = self.path(owner_id, dataset_id)
        path.parent.mkdir(exist_ok=True, mode=0o700)
        _sync(draft)
        draft.replace(path)
        _sync(path.parent)
        _sync(self._rows)  # whoever made the owner's folder may be here, too

    def bytes_of(self, owner_id: str) -> int:
        """Return the bytes that all rows of an owner take."""
        folder = self._rows / owner_id
        return sum(path.stat().st_size for path in folder.iterdir()) if folder.exists() else 0

    def old_rows(self, seconds: float) -> list[tuple[str, str]]:
        """Datasets and owners of the rows that have been there for so long."""
        return [
            (path.stem, path.parent.name)
            for path in self._rows.glob("*/*.npy")
            if time.time() - path.stat().st_mtime > seconds
        ]

    def remove(self, owner_id: str, dataset_id: str) -> None:
        """Delete a dataset's rows."""
        self.path(owner_id, dataset_id).unlink(missing_ok=True)

    def require_writable(self) -> None:
        """Write a block through to the disk, under no name. Raises OSError: that is not possible."""
        with TemporaryFile(dir=self._root) as file:
            file.write(bytes(4096))
            file.flush()
            os.fsync(file.fileno())

    def run_token(self, job_id: str) -> Path:
        """Allow a claimed job to read its rows, once: whoever runs it removes this file first.

        It need not survive a crash of the machine: without it nothing is read. It may be there already, of a
        claim that did not come to pass.
        """
        path = self._permits / job_id
        path.touch(0o600)
        return path

    def withdraw(self, job_id: str) -> None:
        """Take a permit back that was not used."""
        (self._permits / job_id).unlink(missing_ok=True)


def _remove(left: Path) -> None:
    """Remove a file, or the folder in which a restore that was killed had copied a ledger."""
    if left.is_dir() and not left.is_symlink():
        shutil.rmtree(left, ignore_errors=True)
    else:
        left.unlink(missing_ok=True)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
