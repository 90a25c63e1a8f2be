"""What is long in the making and the same every time: the last of it, as text."""

import threading


class PlanCache:
    """Texts by name; those that came first are forgotten first.

    Args:
        room: characters of all that is kept.
    """

    def __init__(self, room: int = 2**25) -> None:
        self._room = room
        self._kept = dict[str, str]()
        self._lock = threading.Lock()

    def get(self, name: str) -> str | None:
        """What was kept under a name, if it still is."""
        return self._kept.get(name)

    def keep(self, name: str, text: str) -> str:
        """Keep it, and return it."""
        with self._lock:
            self._room += len(self._kept.pop(name, "")) - len(text)
            self._kept[name] = text
            while self._room < 0:
                self._room += len(self._kept.pop(next(iter(self._kept))))
        return text
