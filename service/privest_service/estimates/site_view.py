"""What whoever asks may say of the sites that a question is run at, and reads of them."""

from typing import Annotated, Literal

from pydantic import BaseModel, Field

from privest_service.ledger.receipts import Receipt


def _is_zero(given: object) -> bool:
    return given == 0


MayLeave = Annotated[
    int,
    Field(
        ge=0,
        le=99,
        exclude_if=_is_zero,
        description="of several datasets at sites: so many sites may stay away once the run has begun. "
        "The answer then goes on without their records, and states no error",
    ),
]
"""Sites that a run can go on without."""


class SiteView(BaseModel):
    """What the site of one dataset did about a question."""

    dataset: str
    state: Annotated[
        Literal["asked", "accepted", "ended", "refused", "left"],
        Field(
            description="a site that accepted has charged its own ledger; one that left stayed away, and the "
            "answer went on without it"
        ),
    ]
    reason: Annotated[str | None, Field(description="why it refused or left, in its own words")] = None
    receipt: Annotated[
        Receipt | None, Field(description="of the charge at the site, signed with the site's own key")
    ] = None
