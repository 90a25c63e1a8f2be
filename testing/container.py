"""What the Dockerfile and the service say that whoever deploys them has to agree with."""

import re
from functools import cache

import yaml

from privest_service.app import create_app
from privest_service.settings import Settings
from testing import ROOT

DOCKERFILE = re.sub(r"\\\n", " ", (ROOT / "Dockerfile").read_text())


def instructions(name: str) -> list[str]:
    """Arguments of the last stage's instructions of one name."""
    stage = DOCKERFILE[DOCKERFILE.rindex("\nFROM ") :]
    return re.findall(rf"^{name} +(.*)$", stage, re.MULTILINE)


def listed(name: str) -> list[str]:
    """The list that the last instruction of this name holds."""
    return yaml.safe_load(instructions(name)[-1][instructions(name)[-1].index("[") :])


UID, GID = map(int, instructions("USER")[-1].split(":"))
PORT = int(instructions("EXPOSE")[-1])
DATA = instructions("VOLUME")[-1]
SETTINGS = {f"PRIVEST_{name.upper()}" for name in Settings.model_fields} | {"PRIVEST_SECRETS_DIR"}


@cache
def paths() -> set[str]:
    """Where the service answers."""
    app = create_app(None)
    return {str(getattr(route, "path", "")) for route in app.routes} | set(app.openapi()["paths"])
