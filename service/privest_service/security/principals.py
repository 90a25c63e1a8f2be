"""The caller of a request, and what it came with."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from privest_service.acts import Actor
from privest_service.database import now
from privest_service.problems import Forbidden, NotFound
from privest_service.security.keys import SCOPES, Role, Scope


@dataclass(frozen=True)
class Principal:
    """A caller: an administrator, one owner or one analyst."""

    role: Role
    id: str

    def must_be(self, *roles: Role) -> None:
        """Refuse other roles. Raises Forbidden: the caller's role is not among them."""
        if self.role not in roles:
            raise Forbidden

    def must_be_holder(self, role: Role, principal_id: str) -> None:
        """Refuse everyone but the administrator and the one principal of this role and id.

        Raises:
            Forbidden: the caller has another role.
            NotFound: the caller is another principal of this role, for whom this one does not exist.
        """
        self.must_be("admin", role)
        if self.role == role and self.id != principal_id:
            raise NotFound

    def must_be_owner(self, owner_id: str) -> None:
        """Refuse everyone but this owner and the administrator; see `must_be_holder`."""
        self.must_be_holder("owner", owner_id)


@dataclass(frozen=True)
class AsksFor:
    """What makes a key that of a service account.

    Attributes:
        client: of the identity provider; people whose tokens were issued to it may be asked for.
        seconds: that keys issued for them may last, however soon their tokens end.
    """

    client: str
    seconds: int = 0


@dataclass(frozen=True)
class Credential:
    """A key or a token that is good, and who holds it.

    Attributes:
        principal: whose it is.
        scopes: what it is for.
        key_id: of an issued key; None for the administrator's key and for tokens.
        until: when it ends; None for a key that does not.
        person: whose token it is, or whose token issued the key.
        through: the service account that asks for this person.
        asks_for: the people for whom this key may ask.
        issues_until: the latest end of keys that it issues, where that may be later than its own.
    """

    principal: Principal
    scopes: frozenset[str] = frozenset(SCOPES)
    key_id: str | None = None
    until: datetime | None = None
    person: str | None = None
    through: str | None = None
    asks_for: AsksFor | None = None
    issues_until: datetime | None = None

    @property
    def lent(self) -> bool:
        """Whether its key is not the principal's own, but that of a service account that asks for it now."""
        return self.issues_until is not None

    @property
    def actor(self) -> Actor:
        """Whoever acts with it, as acts tell it."""
        return Actor(self.principal.role, self.principal.id, self.key_id, self.person, self.through)

    def must_be_for(self, *scopes: str) -> None:
        """Refuse what this key or token is not for.

        Raises:
            Forbidden: it lacks a scope, which the problem names.
        """
        for scope in scopes:
            if scope not in self.scopes:
                raise Forbidden(
                    f"This key may not do that. Use a key or a token with the scope {scope}.",
                    headers={"WWW-Authenticate": f'Bearer error="insufficient_scope", scope="{scope}"'},
                )

    def pass_on(
        self, scopes: Sequence[Scope] | None, lifetime: timedelta | None
    ) -> tuple[frozenset[str], datetime | None]:
        """The scopes and the end of a key that this one issues; by default they are its own.

        Raises:
            Forbidden: the new key would have more scopes, or end later.
        """
        wanted = self.scopes if scopes is None else frozenset(scopes)
        self.must_be_for(*sorted(wanted))
        end = self.until if lifetime is None else now() + lifetime
        latest = self.issues_until or self.until
        if end and latest and end > latest:
            raise Forbidden(
                "A key cannot issue a key that ends after itself. Leave expires_in out or make it shorter."
            )
        return wanted, end
