"""An analytics platform that shows private numbers on its dashboards, asked for in its users' names.

    python examples/analytics_platform.py keys > keys.json   # makes platform.pem too
    python examples/analytics_platform.py show USER ANALYST DATASET

The key set is what PRIVEST_TOKEN_KEYS names. A user of the platform needs no key of Privest: for every visit
the platform signs a token that says which analyst this is. Answers go into the platform's own database, with
their error and their price, so that a dashboard that is looked at a thousand times asks once: what is done
with an answer afterwards costs nothing.
"""

import json
import os
import sqlite3
import sys
import time
from pathlib import Path

from joserfc import jwt
from joserfc.jwk import ECKey, KeySet

from privest_client import BudgetExceeded, Client

ISSUER = "https://platform.example"
"""What PRIVEST_TOKEN_ISSUER says."""

KEY = Path("platform.pem")

TILES = {"Mean, roughly": 0.05, "Mean, finely": 0.3, "Mean, too finely": 5.0}
"""Of a dashboard, each with its ε."""


def signing_key() -> ECKey:
    """The platform's own, which never leaves it; made at the first call."""
    if not KEY.exists():
        KEY.touch(mode=0o600)
        KEY.write_bytes(ECKey.generate_key("P-256").as_pem(private=True))
    key = ECKey.import_key(KEY.read_bytes())
    key.ensure_kid()
    return key


def token(user: str, analyst: str) -> str:
    """Says for five minutes that a user of the platform is an analyst of Privest."""
    key = signing_key()
    claims = {"iss": ISSUER, "aud": "privest", "sub": user, "exp": int(time.time()) + 300, "privest": analyst}
    return jwt.encode({"alg": "ES256", "kid": key.kid}, claims, key, algorithms=["ES256"])


def ask(client: Client, dataset: str, epsilon: float) -> tuple[str, float, float, str]:
    """The mean as JSON, its error, its price, and the job whose receipt proves both."""
    found = client.frechet_mean(dataset, epsilon=epsilon)
    return json.dumps(found.point.tolist()), found.radius_95, found.privacy.epsilon, found.id


def show(user: str, analyst: str, dataset: str) -> None:
    """A dashboard, with what is missing asked for."""
    answers = sqlite3.connect("platform.db", isolation_level=None)
    answers.execute(
        "CREATE TABLE IF NOT EXISTS answers (tile, analyst, dataset, value, error REAL, epsilon REAL, job, "
        "PRIMARY KEY (tile, analyst, dataset))"
    )
    with Client(os.environ["PRIVEST_URL"], token(user, analyst), progress=False) as client:
        for tile, epsilon in TILES.items():
            place = (tile, analyst, dataset)
            known = (
                "SELECT value, error, epsilon, job FROM answers WHERE (tile, analyst, dataset) = (?, ?, ?)"
            )
            row, source = answers.execute(known, place).fetchone(), "kept"
            if row is None:
                try:
                    row, source = ask(client, dataset, epsilon), "asked"
                except BudgetExceeded:
                    print(f"{tile:>16}: costs ε = {epsilon:g}, which your budget does not cover")
                    continue
                answers.execute("INSERT INTO answers VALUES (?, ?, ?, ?, ?, ?, ?)", (*place, *row))
            value, error, paid, job = row
            shown = ", ".join(f"{number:.1f}" for number in json.loads(value))
            print(f"{tile:>16}: {shown} ± {error:.2f}, for ε = {paid:g} ({source}; {job})")


def main(arguments: list[str]) -> None:
    """Print the key set, or a dashboard."""
    if arguments == ["keys"]:
        print(json.dumps(KeySet([signing_key()]).as_dict(private=False)))
    elif len(arguments) == 4 and arguments[0] == "show":
        show(*arguments[1:])
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
