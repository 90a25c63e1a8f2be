"""Receipts over HTTP: the owner's names the entries of the ledger, the analyst's commits to them."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import pytest

from audit import served
from privest_service.ledger.receipts import Receipt, signed_by
from testing.commands import PRIVEST, run
from testing.server import Caller


@dataclass(frozen=True)
class Charged:
    """An answered query of an analyst.

    Attributes:
        owner: of the dataset.
        analyst: who asked.
        job: by its id.
    """

    owner: Caller
    analyst: Caller
    job: str


@pytest.fixture(scope="module")
def charged() -> Iterator[Charged]:
    """A query on a service of these tests, in which the audit plants a fault."""
    with served.alone() as server:
        owner, analyst = server.owner(), server.analyst()
        dataset = owner.dataset()
        owner.grant(dataset, analyst)
        yield Charged(owner, analyst, analyst.estimate(dataset).json()["id"])


def test_the_owner_s_receipt_is_signed_over_the_chain_and_the_answer(charged: Charged) -> None:
    owner, job = charged.owner, charged.job
    receipt = Receipt.model_validate_json(owner.get(f"/v1/jobs/{job}/receipt").content)
    assert owner.get(f"/v1/jobs/{job}").json()["receipt"] == receipt.model_dump()
    assert signed_by(receipt, receipt.public_key)
    entry = owner.ledger()[0]
    # The owner's, that of the dataset, that of the grant.
    assert (entry["seq"], entry["hash"]) in {(e.seq, e.hash) for e in receipt.statement.entries}
    assert len(receipt.statement.entries) == 3
    for change in ({"answer": "0" * 64}, {"job": "job_x"}, {"entries": []}):
        forged = receipt.model_copy(update={"statement": receipt.statement.model_copy(update=change)})
        assert not signed_by(forged, receipt.public_key)


def test_an_analyst_s_receipt_commits_to_the_entries_and_tells_nothing_of_them(
    charged: Charged, tmp_path: Path
) -> None:
    owner, granted, job = charged.owner, charged.analyst, charged.job
    text = granted.get(f"/v1/jobs/{job}/receipt").text
    receipt = Receipt.model_validate_json(text)
    assert granted.get(f"/v1/jobs/{job}").json()["receipt"] == receipt.model_dump()
    assert signed_by(receipt, receipt.public_key)
    full = Receipt.model_validate_json(owner.get(f"/v1/jobs/{job}/receipt").content).statement
    assert receipt.statement.entries == []
    assert receipt.statement.commitments == sorted(str(entry.commitment) for entry in full.entries)
    for entry in full.entries:
        committed = f"privest receipt entry {entry.salt} {entry.hash}".encode()
        assert entry.commitment == sha256(committed).hexdigest()
        for secret in (str(entry.account), entry.hash, str(entry.salt)):
            assert secret not in text
    # Whoever has the owner's export can tell that it is of the same entries, and no forgery.
    forged = receipt.model_copy(deep=True)
    forged.statement.commitments[0] = "0" * 64
    for name, held, status, says in (
        ("true", receipt, 0, "0 faults"),
        ("forged", forged, 1, "does not commit to the entries"),
    ):
        (tmp_path / "ledger.jsonl").write_text(owner.get(f"/v1/owners/{owner.id}/ledger/export").text)
        (tmp_path / f"{name}.json").write_text(held.model_dump_json())
        arguments = ["--export", str(tmp_path / "ledger.jsonl"), "--key", receipt.public_key]
        arguments += ["--receipt", str(tmp_path / f"{name}.json")]
        done = run([PRIVEST, "verify-ledger", *arguments], os.environ)
        assert (done.returncode, says in done.stdout) == (status, True), done.stdout


# Keys
