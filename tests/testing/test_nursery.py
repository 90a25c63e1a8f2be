"""Services that tests fork live and end as those do that everybody starts."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from testing.server import HANG_GUARD, Server, spawn


@pytest.mark.few(1)
@pytest.mark.parametrize("fresh", [False, True])
def test_a_forked_service_is_like_one_that_was_started(
    fresh: bool, tmp_path: Path, new_database: Callable[[str], str]
) -> None:
    assert Server.launch is not spawn  # tests/conftest.py says so
    server = Server(tmp_path, new_database("sqlite"), fresh=fresh)
    with pytest.raises(subprocess.TimeoutExpired):
        server.process.wait(0)
    assert server.process.poll() is None
    web = psutil.Process(server.process.pid)
    children = web.children(recursive=True)
    assert len(children) == 2  # the tracker of resources, and the process from which workers are forked
    assert not [name for each in children for name in each.environ() if name.startswith("PRIVEST_")]
    owner = server.owner()
    assert owner.estimate(owner.dataset()).json()["state"] == "committed"
    assert len(web.children(recursive=True)) > 2
    server.stop()
    assert server.process.returncode == 0
    gone, left = psutil.wait_procs(children, HANG_GUARD)
    assert (len(gone), left) == (2, [])
    assert "Traceback" not in server.log.read_text()
