"""Workers as the web process uses them."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from privest_service.workers.service import Workers


def in_workers(
    use: Callable[[Workers], Coroutine[None, None, None]], timeout: float = 30.0, **how: Any
) -> None:
    """Use workers as the web process does, in its event loop."""

    async def life() -> None:
        workers = Workers(timeout=timeout, **how)
        workers.start()
        try:
            await use(workers)
        finally:
            await asyncio.to_thread(workers.stop)

    asyncio.run(life())
