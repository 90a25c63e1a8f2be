"""A limit on what a file may unpack to. Small files that hold enormous tables are refused by their size."""

from privest_service.upload_errors import RefusedUploadError, refusal

_FREE = 2**25
"""Bytes to which any file may unpack, however small it is."""

_RATIO = 512
"""Bytes that a larger file may unpack to for each of its own. Plain tables unpack to less than a hundred."""


class Room:
    """Counts the bytes that one file unpacks to, 8 for each number and text.

    A file of `size` bytes may never unpack to more than `limit` bytes.
    """

    def __init__(self, size: int, limit: int) -> None:
        self._size, self._used = size, 0
        self._most = max(_FREE, min(limit, _RATIO * size))

    def require(self, more: int) -> None:
        """Refuse what a file says that it holds, before any of it is unpacked.

        Raises:
            RefusedUploadError: so many bytes more have no room.
        """
        if self._used + more > self._most:
            raise self._refusal()

    def take(self, more: int) -> None:
        """Count what was unpacked. Raises RefusedUploadError: it is more than there was room for."""
        self.require(more)
        self._used += more

    def _refusal(self) -> RefusedUploadError:
        return refusal(
            f"unpacks to more than the {self._most} bytes that a file of {self._size} bytes may, 8 for each "
            "number or text: upload fewer rows at a time, or a format that packs less, such as csv or npy"
        )
