"""Dependencies of endpoints: the engine, the planner, and what charges requests."""

from typing import Annotated

from privest_service.estimates.engine import Engine
from privest_service.estimates.service import Planner, Submissions
from privest_service.parts import running

EngineDep = Annotated[Engine, running(Engine)]
PlannerDep = Annotated[Planner, running(Planner)]
SubmissionsDep = Annotated[Submissions, running(Submissions)]
