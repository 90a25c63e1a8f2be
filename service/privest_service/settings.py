"""Settings of one service, from the environment, and from files where what it holds should not be seen."""

import os
import re
import secrets
from collections.abc import Callable
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Literal

from limits import parse
from pydantic import AfterValidator, BeforeValidator, Field, IPvAnyNetwork, SecretStr, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict
from sqlalchemy import make_url
from sqlalchemy.exc import ArgumentError

from privest_service.signing import Signer, new_signing_key

Algorithm = Literal[
    "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "Ed25519"
]
"""Signature algorithms of tokens. Only those where the party that verifies cannot sign are listed."""

_HOST_AND_PORT = r"([\w.-]+|\[[\da-fA-F:.]+\]):\d{1,5}"


def _matching(pattern: str, rule: str) -> AfterValidator:
    """Refuse a text that does not match a pattern as a whole, with the rule that it breaks."""

    def checked(given: str) -> str:
        if not re.fullmatch(pattern, given, re.ASCII):
            raise ValueError(rule)
        return given

    return AfterValidator(checked)


def _installed(engine: str) -> str:
    """The name of an engine, unless its library is missing."""
    if engine != "local" and find_spec("distributed") is None:
        raise ValueError("needs Dask, which is not installed: pip install 'privest[dask]' installs it")
    return engine


def _database(url: str) -> str:
    """The address of a database. After a bare @ in a password, errors would tell the rest as the host."""
    try:
        found = make_url(url or "sqlite://")
    except (ArgumentError, ValueError):
        found = None
    if found is None or (found.host and "@" in f"{found.host}{found.database}"):
        raise ValueError(
            "must look like postgresql://user:password@host/name, with %40 for an @ in the password"
        )
    return url


def _parts(listed: object) -> object:
    """Split a text at its commas."""
    return [part.strip() for part in listed.split(",") if part.strip()] if isinstance(listed, str) else listed


def _rate(limit: str) -> str:
    """A number of requests in some time."""
    try:
        parse(limit)
    except ValueError:
        raise ValueError("must look like 600/minute or 10/second") from None
    return limit


def _mail_server(url: SecretStr) -> SecretStr:
    """The address of a mail server."""
    if not re.fullmatch(r"smtps?://([^\s/@]+@)?[\w.-]+(:\d{1,5})?", url.get_secret_value(), re.ASCII):
        raise ValueError("must look like smtps://user:password@host:465, with %40 for an @ in the password")
    return url


_Mail = _matching(r"[^\s<>@]+@[^\s<>@]+", "must be an e-mail address")
_Engine = _matching(
    rf"local|dask(\+tls)?://{_HOST_AND_PORT}", "must be local, dask://host:port or dask+tls://host:port"
)
_Encrypted = _matching(
    r"local|dask\+tls://.*|dask://(localhost|127(\.\d{1,3}){3}|\[::1\]):\d+",
    "must be dask+tls://host:port, because the scheduler may be on another machine: docs/scaling.md shows "
    "how. Without TLS only a scheduler on this machine is accepted, as dask://127.0.0.1:8786",
)
_Address = _matching(f"({_HOST_AND_PORT})?", "must be a host and a port, such as 127.0.0.1:9464")
_HeldBy = _matching(r"analyst|admin|own_[\w-]{1,36}", "must be analyst, admin or the id of an owner")
_Prefix = _matching(
    r"(?!/(?:v1|dashboard)(?:/|$))(?:/[\w.~-]+)*",
    "must look like /privest, with no slash at its end, and must not begin with /v1 or /dashboard",
)
_KeySet = _matching(
    r"(?s)(?!.*://).*|https://.*|http://(127\.0\.0\.1|localhost|\[::1\])[:/].*",
    "must be a file or an https address",
)
"""An address is only allowed where nobody in between can exchange the keys."""
_Hub = _matching(
    r"|https://[^\s/@]+|http://(127\.0\.0\.1|localhost|\[::1\])(:\d{1,5})?",
    "must be an https address without a path, such as https://hub.example.org",
)


_Origin = _matching(
    r"https?://([\w.-]+|\[[\da-fA-F:]+\])(:\d{1,5})?", "must be an origin, such as https://lab.example.org"
)


class Settings(BaseSettings):
    """Read from `PRIVEST_…`; every default suits one machine with SQLite.

    A file in `PRIVEST_SECRETS_DIR` that is named as a variable, as `privest_admin_key`, stands for one that
    is not set: environments are shown by `docker inspect`, and every worker inherits them.
    """

    model_config = SettingsConfigDict(
        env_prefix="PRIVEST_", extra="ignore", secrets_dir=os.environ.get("PRIVEST_SECRETS_DIR")
    )

    admin_key: Annotated[SecretStr, Field(min_length=16)]
    """Opens everything an administrator may do; any string of 16 characters or more."""

    data_dir: Path = Path("privest-data")
    """Where rows, the SQLite database and generated secrets live."""

    database_url: Annotated[str, AfterValidator(_database)] = ""
    """SQLAlchemy URL of SQLite or PostgreSQL; default: SQLite in the data directory."""

    migration_url: Annotated[str, AfterValidator(_database)] = ""
    """URL of the database under the role that makes its tables, for `privest migrate`; default: one role."""

    reading_role: str | None = None
    """Role of PostgreSQL that migrations let read the views (database/views.py), and nothing else."""

    secret_file: Path | None = None
    """32 bytes or more that key the fingerprints; made in the data directory on SQLite, else required."""

    signing_key_file: Path | None = None
    """Ed25519 private key in PEM that signs receipts; made in the data directory on SQLite, else required."""

    engine: Annotated[str, _Engine, _Encrypted, AfterValidator(_installed)] = "local"
    """What runs the jobs: worker processes of this machine, or the Dask cluster of a scheduler."""

    workers: Annotated[int, Field(ge=1, le=256)] = max(1, (os.cpu_count() or 1))
    """Jobs that run at a time; worker processes, where they are this machine's."""

    worker_memory: Annotated[int, Field(ge=2**28)] = 2**31
    """Bytes that a worker process of this machine may take, rows that it reads aside."""

    job_timeout: Annotated[float, Field(gt=0)] = 600.0
    """Seconds after which a run is stopped and, being claimed, stays charged."""

    intake_workers: Annotated[int, Field(ge=2, le=64)] = 2
    """Uploads that are parsed at a time, of different owners; as many sources are fetched at a time."""

    intake_timeout: Annotated[float, Field(gt=0)] = 300.0
    """Seconds after which the parsing of an upload is stopped; never longer than a job may run."""

    max_upload_bytes: Annotated[int, Field(ge=1024)] = 256 * 2**20
    """Largest request body that holds a dataset."""

    max_dataset_bytes: Annotated[int, Field(ge=1024)] = 16 * 2**30
    """Largest dataset that a handle may fetch, and largest rows that are stored."""

    max_owner_bytes: Annotated[int, Field(ge=1024)] = 64 * 2**30
    """What the rows of one owner may take together."""

    max_request_bytes: Annotated[int, Field(ge=1024)] = 1 * 2**20
    """Largest body of any other request."""

    max_waiting_jobs: Annotated[int, Field(ge=1)] = 1000
    """Jobs that may wait for a worker before further ones are refused; a quarter of them one caller's."""

    decide_within: Annotated[int, Field(ge=1, le=8760)] = 168
    """Hours in which an owner decides on a question that it has to approve, before the request ends."""
    notice_networks: Annotated[tuple[IPvAnyNetwork, ...], NoDecode, BeforeValidator(_parts)] = ()
    """Networks, between commas, that webhooks may reach besides public addresses, without TLS too."""

    notice_dir: Path | None = None
    """Directory below which owners may have notices written into files; default: none."""

    mail_server: Annotated[SecretStr, AfterValidator(_mail_server)] | None = None
    """Where e-mail is handed in: smtps://user:password@host; smtp:// is encrypted for a password."""

    mail_from: Annotated[str, _Mail] = "privest@localhost"
    """Sender of e-mail."""

    metrics_address: Annotated[str, _Address] = ""
    """Where metrics are served without a key, as `127.0.0.1:9464`; default: nowhere."""

    root_path: Annotated[str, _Prefix] = ""
    """Path below which callers find the service; default: none."""

    trusted_proxies: Annotated[tuple[IPvAnyNetwork, ...], NoDecode, BeforeValidator(_parts)] = ()
    """Addresses and networks, between commas, whose X-Forwarded-… are believed; default: nobody's."""

    cors_origins: Annotated[tuple[Annotated[str, _Origin], ...], NoDecode, BeforeValidator(_parts)] = ()
    """Origins, between commas, whose pages may call the interface with a key; default: none."""

    rate_limit: Annotated[str, AfterValidator(_rate)] = "600/minute"
    """Requests of one owner or analyst, in this process."""

    patience: Annotated[float, Field(gt=0)] = 10.0
    """Seconds in which a client that is waited for has to bring or take 4 KiB; looked at as often."""

    token_issuer: str = ""
    """Issuer (`iss`) whose tokens are accepted besides keys; default: none."""

    token_keys: Annotated[str, _KeySet] = ""
    """Address (https) or file of that issuer's key set."""

    token_audience: str = "privest"  # noqa: S105 - no password
    """Audience (`aud`) that a token must name."""

    token_algorithms: Annotated[tuple[Algorithm, ...], Field(min_length=1)] = ("RS256", "ES256")
    """Signature algorithms that a token may use."""

    token_claim: str = "privest"  # noqa: S105 - no password
    """Claim that holds the id of an owner or an analyst."""

    token_scope_prefix: str = "privest:"  # noqa: S105 - no password
    """Prefix of those scopes in a token's `scope` that are meant for this service."""

    token_groups: dict[str, Annotated[str, _HeldBy]] = {}
    """What people are by their groups, in JSON: `analyst`, `admin` or an owner's id; the first counts."""

    token_groups_claim: str = "groups"  # noqa: S105 - no password
    """Claim that lists a person's groups."""

    hub_url: Annotated[str, _Hub] = ""
    """Address (https) of the service that this one offers datasets to, as a site; default: none."""

    hub_key: SecretStr | None = None
    """Key of an owner at the hub, with the scopes read and data, as whom this site calls it."""

    hub_analyst: str = ""
    """Id of an analyst here, as whom the hub asks: what is granted to it is offered."""

    hub_ca_file: Path | None = None
    """Certificates that may vouch for the hub, in PEM, instead of the system's."""

    hub_certificate_file: Path | None = None
    """Certificate of this site with its key, in PEM, where the hub asks for one."""

    @model_validator(mode="after")
    def _site_has_all(self) -> "Settings":
        if len({bool(self.hub_url), bool(self.hub_key), bool(self.hub_analyst)}) > 1:
            raise ValueError("PRIVEST_HUB_URL, PRIVEST_HUB_KEY and PRIVEST_HUB_ANALYST go together: set all")
        if self.hub_url and self.engine != "local":
            raise ValueError("PRIVEST_HUB_URL needs PRIVEST_ENGINE=local, as sites run their part themselves")
        return self

    @model_validator(mode="after")
    def _reading_role_only_reads(self) -> "Settings":
        urls = [make_url(each) for each in (self.url, self.migration_url) if each]
        if self.reading_role and urls[0].get_backend_name() != "postgresql":
            raise ValueError("PRIVEST_READING_ROLE needs PostgreSQL, as SQLite has no roles")
        if self.reading_role and self.reading_role in [url.username for url in urls]:
            raise ValueError(
                "PRIVEST_READING_ROLE must be a role of its own: it is left nothing but the views"
            )
        return self

    @model_validator(mode="after")
    def _issuer_has_keys(self) -> "Settings":
        if bool(self.token_issuer) != bool(self.token_keys):
            raise ValueError("PRIVEST_TOKEN_ISSUER and PRIVEST_TOKEN_KEYS go together: set both or neither")
        return self

    @property
    def url(self) -> str:
        """The database to use."""
        return self.database_url or f"sqlite:///{self.data_dir.resolve() / 'privest.db'}"

    @property
    def running_role(self) -> str | None:
        """The role to which `privest migrate` grants the service's tables; None where one role does both."""
        running = make_url(self.url).username
        return running if self.migration_url and make_url(self.migration_url).username != running else None

    @cached_property
    def secret(self) -> bytes:
        """The service secret, made on first use where that is allowed.

        Raises:
            ValueError: it is missing or too short.
        """
        content = self._key_file(self.secret_file, "secret", lambda: secrets.token_bytes(32)).read_bytes()
        if len(content) < 32:
            raise ValueError(
                "PRIVEST_SECRET_FILE must hold at least 32 bytes. Make one with `head -c 32 /dev/urandom`."
            )
        return content

    @cached_property
    def signer(self) -> Signer:
        """The signer of entries, receipts and heads. Its key is made on first use where that is allowed.

        Raises:
            ValueError: the key is missing or of another kind.
        """
        return Signer(self._key_file(self.signing_key_file, "signing_key", new_signing_key).read_bytes())

    def _key_file(self, given: Path | None, name: str, make: Callable[[], bytes]) -> Path:
        """The file that was given, or one of the service's own in the data directory."""
        if given is not None:
            if not given.is_file():
                raise ValueError(
                    f"PRIVEST_{name.upper()}_FILE does not name a file. Set it to the path of one."
                )
            return given
        if not self.url.startswith("sqlite"):
            raise ValueError(
                f"Set PRIVEST_{name.upper()}_FILE. All replicas on PostgreSQL need the same file."
            )
        path = self.data_dir / name
        _make_private_file(path, make)
        return path


def _make_private_file(path: Path, make: Callable[[], bytes]) -> None:
    """Create the file, readable by its owner alone, unless it is there; whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists():
        return
    draft = path.with_suffix(f".{os.getpid()}.{secrets.token_hex(4)}")
    with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:  # noqa: PTH123
        file.write(make())
        file.flush()
        os.fsync(file.fileno())
    try:
        os.link(draft, path)
    except FileExistsError:
        pass  # another process was first, and its secret is the one
    finally:
        draft.unlink()
