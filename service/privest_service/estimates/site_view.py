"""What whoever asked reads of each site that a question is run at."""

from typing import Annotated, Literal

from pydantic import BaseModel, Field

from privest_service.ledger.receipts import Receipt


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
