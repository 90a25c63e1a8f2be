"""What a second caller waits for beside one who takes all there is, resource by resource."""

from os import getloadavg
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.report import publish, table
from testing.attackers import ATTACKS, beside
from testing.server import Server


def main() -> None:
    lines = list[list[str]]()
    for prepare in ATTACKS.values():
        with TemporaryDirectory() as directory:
            server = Server(Path(directory), f"sqlite:///{directory}/privest.db")
            try:
                second, attack = server.analyst(), prepare(server)
                idle, attacked = beside(attack, server, second)
            finally:
                server.kill()
        numbers = (f"{1e3 * idle:.1f}", f"{1e3 * attacked:.1f}", f"{attacked / idle:.1f}")
        lines.append([attack.resource, str(attack.threads), *numbers])
    head = ["what one caller sends", "at once", "alone, ms", "beside it, ms", "ratio"]
    body = f"""
Medians of 25 times `GET /v1/me` by a second caller, on SQLite with one worker; the attacker is a process
on the same machine, whose load was {getloadavg()[0]:.0f} at the end. The goal is 250 ms.

{table(head, lines)}
"""
    publish("limits", "Beside one who takes all there is", body)


if __name__ == "__main__":
    main()
