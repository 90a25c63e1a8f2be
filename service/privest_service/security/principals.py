"""The caller of a request."""

from dataclasses import dataclass

from privest_service.problems import Forbidden, NotFound
from privest_service.security.keys import Role


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
