"""Witnesses: heads that went elsewhere hold the ledger to what it was, and tell when it is not."""

import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select, text, update
from sqlalchemy.orm import Session

from privest_service.database import Database, now
from privest_service.exports import witnesses
from privest_service.exports.export import lines
from privest_service.exports.lines import Heads, kept_heads
from privest_service.exports.verify import verify
from privest_service.ledger.chain import entry_hash, to_sign
from privest_service.ledger.models import Account, Entry
from privest_service.ledger.units import Charge, Limits
from privest_service.notices import service as notices
from privest_service.notices.models import Channel, Delivery
from privest_service.notices.schemas import NewFile
from privest_service.signing import Signer
from testing.books import Books
from testing.server import SIGNER, private_key_pem

SECRET = b"s" * 32


@pytest.fixture
def books(database: Database) -> Books:
    """An owner with an account, some entries, and a channel on which heads were sent once."""
    books = Books(database)
    with database.write() as session:
        notices.add(
            session, books.owner, NewFile(kind="file", name="witness", events=[], heads="day"), SECRET
        )
    account = books.open(Limits("basic", 10**9, 10**9, 0, 0))
    for _ in range(3):
        books.reserve({account: Charge(1, 1, 1, 1)})
    witnesses.send_due(database)
    return books


def sent(books: Books) -> list[dict[str, Any]]:
    """What waits to be delivered, first to last."""
    with books.database.read() as session:
        found = session.scalars(select(Delivery.body).order_by(Delivery.created_at, Delivery.id)).all()
    return [json.loads(body) for body in found]


def next_time(books: Books) -> dict[str, Any]:
    """The facts of the heads that are sent a day later."""
    with books.database.write() as session:
        session.execute(update(Channel).values(heads_due_at=now()))
    before = len(sent(books))
    witnesses.send_due(books.database)
    witnesses.send_due(books.database)  # as another replica would
    assert len(sent(books)) == before + 1
    return sent(books)[-1]["facts"]


def account_of(session: Session) -> Account:
    """The account with entries to be forged."""
    return session.scalars(select(Account).where(Account.scope == "analyst")).one()


def disarm(session: Session, table: str = "entries") -> None:
    """Take away what keeps links as they are, as somebody with the database in hand could."""
    if session.get_bind().dialect.name == "sqlite":
        for action in ("update", "delete"):
            session.execute(text(f"DROP TRIGGER {table}_no_{action}"))
    else:
        session.execute(text(f"ALTER TABLE {table} DISABLE TRIGGER ALL"))
        session.execute(text(f"GRANT UPDATE, DELETE ON {table} TO CURRENT_USER"))


def cut(session: Session) -> None:
    """Cut the tail and make the account whole again."""
    account = account_of(session)
    last = session.get_one(Entry, (account.id, 3))
    session.execute(text("DELETE FROM entries WHERE account_id = :a AND seq = 4"), {"a": account.id})
    session.execute(
        text(
            "UPDATE accounts SET seq = 3, head = :h, epsilon_spent = 2, delta_spent = 2,"
            " mu_squared_spent = 2, slack_spent = 2, queries = 2 WHERE id = :a"
        ),
        {"a": account.id, "h": last.hash},
    )


def swap(session: Session) -> None:
    """Write the last entry anew, with less, and sign it: with the key anybody can."""
    account = account_of(session)
    entry = session.get_one(Entry, (account.id, 4))
    entry.epsilon, entry.epsilon_spent = 0, 2
    entry.hash = entry_hash(entry)
    entry.signature = SIGNER.sign(to_sign(entry.hash))
    session.flush()
    session.execute(
        text("UPDATE accounts SET head = :h, epsilon_spent = 2 WHERE id = :a"),
        {"a": account.id, "h": entry.hash},
    )


@pytest.mark.parametrize("forgery", [cut, swap])
def test_what_was_cut_or_swapped_shows_when_the_next_heads_are_sent_and_in_the_verifier(
    books: Books, forgery: Callable[[Session], None], tmp_path: Path
) -> None:
    with books.database.write() as session:
        disarm(session)
        forgery(session)
        number = account_of(session).id
    fault = f"account {number} does not go through its head at 4"
    for _ in range(2):  # it stays told: a forger has not one day alone to be afraid of
        facts = next_time(books)
        assert (facts["follows"], facts["faults"]) == (False, [fault])
    kept = tmp_path / "witness.jsonl"
    kept.write_text("".join(json.dumps(notice) + "\n" for notice in sent(books)))
    with books.database.read(snapshot=True) as session:
        told = list(lines(session))
    keys = [SIGNER.public_key]
    assert not [
        fault for fault in verify(told, keys).faults if "mechanism" not in fault and "job" not in fault
    ]
    found = verify(told, keys, kept_heads(kept.read_text())).faults
    assert sum(fault in each for each in found) == 1  # by the first heads: the later ones are the forger's


def test_what_cannot_even_be_read_shows_and_holds_nobody_up(books: Books) -> None:
    """Whoever wrote a time that is none silenced the heads and notices of all owners for good."""
    books.reserve({books.open(Limits("basic", 10**9, 10**9, 0, 0)): Charge(1, 1, 1, 1)})
    with books.database.write() as session:
        disarm(session)
        no_time = "x" if session.get_bind().dialect.name == "sqlite" else "infinity"
        session.execute(text("UPDATE entries SET at = :at WHERE kind = 'debit'"), {"at": no_time})
    facts = next_time(books)
    assert (facts["follows"], facts["faults"]) == (False, ["what is there cannot be read"])


def test_heads_follow_each_other_while_the_ledger_is_added_to(books: Books) -> None:
    first = sent(books)[0]
    assert (first["type"], first["facts"]["follows"], first["facts"]["faults"]) == ("ledger.heads", None, [])
    assert witnesses.send_due(books.database) is None
    assert len(sent(books)) == 1  # it is not time
    account = books.open(Limits("basic", 10**9, 10**9, 0, 0))
    books.reserve({account: Charge(1, 1, 1, 1)})
    facts = next_time(books)
    assert (facts["follows"], facts["faults"]) == (True, [])
    with books.database.read(snapshot=True) as session:
        told = list(lines(session))
    kept = [Heads.model_validate(notice["facts"]["heads"]) for notice in sent(books)]
    assert len(kept) == 2
    assert not [fault for fault in verify(told, [SIGNER.public_key], kept).faults if "mechanism" not in fault]
    with books.database.write() as session:  # by a clock that was ahead by months
        session.execute(update(Channel).values(heads_due_at=now() + timedelta(days=90)))
    witnesses.send_due(books.database)
    assert len(sent(books)) == 3


def test_an_entry_between_two_heads_that_was_changed_shows(books: Books) -> None:
    account = books.open(Limits("basic", 10**9, 10**9, 0, 0))
    for _ in range(2):
        books.reserve({account: Charge(1, 1, 1, 1)})
    with books.database.write() as session:
        disarm(session)
        session.execute(
            text("UPDATE entries SET epsilon = 0 WHERE account_id = :a AND seq = 2"), {"a": account}
        )
    (fault,) = next_time(books)["faults"]
    assert fault == f"account {account}: its link 2 was changed, or does not follow the one before"


def test_an_act_that_was_cut_or_changed_shows(books: Books) -> None:
    with books.database.write() as session:
        disarm(session, "acts")
        session.execute(text("UPDATE acts SET reason = 'another'"))
    last = Heads.model_validate(sent(books)[0]["facts"]["heads"])
    assert last.acts
    first = last.model_copy(update={"acts": None})  # as if they were sent before there was a record
    with books.database.read(snapshot=True) as session:
        (fault,) = witnesses.faults_since(session, books.owner, first)
    assert fault == f"acts of {books.owner}: its link 1 was changed, or does not follow the one before"
    with books.database.write() as session:
        session.execute(text("DELETE FROM acts"))
    (fault,) = next_time(books)["faults"]
    assert fault == f"acts of {books.owner} does not go through its head at {last.acts[0].seq}"


def test_forged_heads_are_no_heads(books: Books) -> None:
    """Signed by another key, or changed since, or of a chain that never was so long."""
    true = Heads.model_validate(sent(books)[0]["facts"]["heads"])
    stranger = Signer(private_key_pem())
    longer = [head.model_copy(update={"seq": head.seq + 1}) for head in true.heads]
    with books.database.read(snapshot=True) as session:
        told = list(lines(session))
    for forged in (
        true.model_copy(update={"at": now().isoformat()}),
        true.model_copy(update={"signer": stranger.id}),
        true.model_copy(update={"heads": longer}),
    ):
        faults = verify(told, [SIGNER.public_key], [forged]).faults
        assert any("the heads have no true signature" in fault for fault in faults)


def test_heads_are_read_as_they_were_kept() -> None:
    plain = '{"type": "heads", "heads": [], "at": "x", "signer": "y", "signature": "z"}'
    notice = json.dumps({"id": "ntc_1", "type": "ledger.heads", "facts": {"heads": json.loads(plain)}})
    other = json.dumps({"id": "ntc_2", "type": "test", "facts": {}})
    pretty = json.dumps(json.loads(plain), indent=2)
    for kept, number in ((plain, 1), (pretty, 1), (notice, 1), (f"{notice}\n{other}\n\n{plain}\n", 2)):
        assert len(kept_heads(kept)) == number
    for wrong in ("", other, "{", "[]", '{"facts": {"heads": 1}}'):
        with pytest.raises((ValueError, TypeError, KeyError)):
            kept_heads(wrong)
