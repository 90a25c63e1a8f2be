"""Connections: what is written in one turn of the event loop is sent together, and nothing waits longer."""

import asyncio
from collections.abc import Iterable
from typing import Any

from privest_service.slow_clients import _TOGETHER, _Joining


class _Sent:
    """A transport that notes what it is to send, and when it is closed."""

    def __init__(self) -> None:
        self.done = list[Any]()

    def writelines(self, parts: Iterable[bytes]) -> None:
        self.done.append(b"".join(parts))

    def close(self) -> None:
        self.done.append("closed")

    def get_write_buffer_size(self) -> int:
        return 0


def test_a_head_and_its_body_are_sent_together_and_before_the_connection_is_closed() -> None:
    sent: Any = _Sent()

    async def main() -> None:
        joining = _Joining(sent, asyncio.get_running_loop())
        for part in (b"head", b"body", b""):
            joining.write(part)
        assert (sent.done, joining.get_write_buffer_size()) == ([], 8)
        await asyncio.sleep(0)
        assert (sent.done, joining.get_write_buffer_size()) == ([b"headbody"], 0)
        joining.write(b"end")
        joining.close()
        await asyncio.sleep(0)
        assert sent.done[1:] == [b"end", "closed"]

    asyncio.run(main())


def test_a_stream_that_never_waits_is_not_gathered() -> None:
    sent: Any = _Sent()

    async def main() -> None:
        joining = _Joining(sent, asyncio.get_running_loop())
        for _ in range(3):
            joining.write(b"x" * (_TOGETHER // 2))
        assert [len(each) for each in sent.done] == [_TOGETHER]
        await asyncio.sleep(0)
        assert [len(each) for each in sent.done] == [_TOGETHER, _TOGETHER // 2]

    asyncio.run(main())
