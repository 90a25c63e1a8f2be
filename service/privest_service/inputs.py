"""What everything that a caller sends has in common."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, StringConstraints

Name = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=200)]


class Input(BaseModel):
    """Base of request bodies: unknown fields, infinities and NaN are refused."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)
