"""The table of `audit.access` is whole. It holds on PostgreSQL too; the audit itself runs it on SQLite."""

import pytest

from audit import access
from testing.server import Server


def test_every_operation_has_its_row_and_every_row_its_operation() -> None:
    assert {operation.name for operation in access.operations()} == access.TABLE.keys()
    assert {len(row) for row in access.TABLE.values()} == {len(access.ROLES)}


@pytest.mark.prove
@pytest.mark.parametrize("backend", ["postgresql"])
def test_every_role_may_what_the_table_says_and_learns_nothing_of_what_is_not_its_own(server: Server) -> None:
    assert list(access.wrong(server)) == []
