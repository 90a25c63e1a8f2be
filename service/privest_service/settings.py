"""Settings of one service, from the environment alone."""

import os
import secrets
from functools import cached_property
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict


class Settings(BaseSettings):
    """Read from `PRIVEST_…`; every default suits one machine with SQLite."""

    model_config = SettingsConfigDict(env_prefix="PRIVEST_", extra="ignore")

    admin_key: Annotated[SecretStr, Field(min_length=16)]
    """Opens everything an administrator may do; any string of 16 characters or more."""

    data_dir: Path = Path("privest-data")
    """Where rows, the SQLite database and generated secrets live."""

    database_url: str = ""
    """SQLAlchemy URL of SQLite or PostgreSQL; default: SQLite in the data directory."""

    secret_file: Path | None = None
    """32 bytes or more that key the fingerprints; made in the data directory on SQLite, else required."""

    engine: Literal["local"] = "local"
    """What runs the jobs: worker processes of this machine."""

    workers: Annotated[int, Field(ge=1, le=256)] = max(1, (os.cpu_count() or 1))
    """Worker processes."""

    job_timeout: Annotated[float, Field(gt=0)] = 600.0
    """Seconds after which a run is stopped and, being claimed, stays charged."""

    max_upload_bytes: Annotated[int, Field(ge=1024)] = 256 * 2**20
    """Largest request body that holds a dataset."""

    max_request_bytes: Annotated[int, Field(ge=1024)] = 1 * 2**20
    """Largest body of any other request."""

    max_waiting_jobs: Annotated[int, Field(ge=1)] = 1000
    """Jobs that may wait for a worker before further ones are refused."""

    @property
    def url(self) -> str:
        """The database to use."""
        return self.database_url or f"sqlite:///{self.data_dir.resolve() / 'privest.db'}"

    @cached_property
    def secret(self) -> bytes:
        """The service secret, made on first use where that is allowed.

        Raises:
            ValueError: PostgreSQL without a secret file: replicas must share one.
        """
        path = self.secret_file
        if path is None:
            if not self.url.startswith("sqlite"):
                raise ValueError("set PRIVEST_SECRET_FILE: on PostgreSQL every replica needs the same secret")
            path = self.data_dir / "secret"
            _make_private_file(path, secrets.token_bytes(32))
        content = path.read_bytes()
        if len(content) < 32:
            raise ValueError("PRIVEST_SECRET_FILE must hold at least 32 bytes")
        return content


def _make_private_file(path: Path, content: bytes) -> None:
    """Create the file, readable by its owner alone, unless it is there; whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists():
        return
    draft = path.with_suffix(f".{os.getpid()}.{secrets.token_hex(4)}")
    with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:  # noqa: PTH123
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    try:
        os.link(draft, path)
    except FileExistsError:
        pass  # another process was first, and its secret is the one
    finally:
        draft.unlink()
