"""Answers that were kept: read again from what `save` wrote."""

import json
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from privest_client.errors import UnexpectedAnswer
from privest_client.estimators import KINDS


def load(path: str | Path) -> Any:
    """The answer that `Estimate.save` wrote into a file.

    Raises:
        UnexpectedAnswer: the file holds none, or one of another version.
    """
    try:
        content = json.loads(Path(path).read_text())
        kind = KINDS[content["job"]["kind"]]
        return kind.answer(kind.job.model_validate(content["job"]), content["schema"])
    except (ValueError, KeyError, TypeError, ValidationError):
        raise UnexpectedAnswer(f"{path} holds no answer that a client of this version has kept") from None
