"""The caller of a request, and what it came with."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from privest_service.database import now
from privest_service.problems import Forbidden, NotFound
from privest_service.security.keys import SCOPES, Role, Scope


@dataclass(frozen=True)
class Principal:
    """Who calls: an administrator, one owner or one analyst."""

    role: Role
    id: str

    def must_be(self, *roles: Role) -> None:
        """Refuse other roles.

        Raises:
            Forbidden: the caller's role is not among them.
        """
        if self.role not in roles:
            raise Forbidden

    def must_be_owner(self, owner_id: str, *, or_admin: bool = True) -> None:
        """Refuse everyone but this owner and, unless told otherwise, the administrator.

        Raises:
            Forbidden: analysts, and the administrator where it has no business.
            NotFound: other owners, for whom this one does not exist.
        """
        self.must_be("owner", *(("admin",) if or_admin else ()))
        if self.role == "owner" and self.id != owner_id:
            raise NotFound


@dataclass(frozen=True)
class Credential:
    """A key or a token that is good, and who holds it.

    Attributes:
        principal: whose it is.
        scopes: what it is for.
        key_id: of a key; the administrator's has none, and a token neither.
        until: when it ends; None for a key that does not.
    """

    principal: Principal
    scopes: frozenset[str] = frozenset(SCOPES)
    key_id: str | None = None
    until: datetime | None = None

    def must_be_for(self, *scopes: str) -> None:
        """Refuse what this key or token is not for.

        Raises:
            Forbidden: it lacks a scope, which the problem names.
        """
        for scope in scopes:
            if scope not in self.scopes:
                raise Forbidden(
                    f"this needs a key or a token with the scope {scope}",
                    headers={"WWW-Authenticate": f'Bearer error="insufficient_scope", scope="{scope}"'},
                )

    def pass_on(
        self, scopes: Sequence[Scope] | None, lifetime: timedelta | None
    ) -> tuple[frozenset[str], datetime | None]:
        """The scopes and the end of a key that is issued with this one; by default its own.

        Raises:
            Forbidden: more than it has itself.
        """
        wanted = self.scopes if scopes is None else frozenset(scopes)
        self.must_be_for(*sorted(wanted))
        end = self.until if lifetime is None else now() + lifetime
        if end and self.until and end > self.until:
            raise Forbidden("a key cannot issue one that ends after itself; leave expires_in out")
        return wanted, end
