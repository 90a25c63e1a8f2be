"""An owner's first hour by what openapi-python-client makes; prints what came of it."""

import json
import os
from io import BytesIO

from generated import AuthenticatedClient  # pyright: ignore
from generated.api.datasets import upload_dataset  # pyright: ignore
from generated.api.estimates import estimate_frechet_mean, plan_frechet_mean, read_job  # pyright: ignore
from generated.models import (  # pyright: ignore
    DatasetRef,
    EuclideanSpace,
    FileForm,
    FrechetMeanJob,
    FrechetMeanPlanRequest,
    FrechetMeanRequest,
    PlanPrivacy,
    PointsSchema,
    ProblemDocument,
    RequestedPrivacy,
)
from generated.types import File  # pyright: ignore

client = AuthenticatedClient(os.environ["PRIVEST_URL"], os.environ["PRIVEST_KEY"], timeout=300)

rows = File(BytesIO(b"a,b\n0.1,0.2\n0.3,-0.1\n-0.2,0.4\n"), "rows.csv", "text/csv")
plane = PointsSchema(kind="points", manifold=EuclideanSpace(name="euclidean", dim=2), radius=1.0)
form = FileForm(file=rows, schema=plane)
dataset = upload_dataset.sync(client=client, body=form)
about = DatasetRef(dataset.id)

asked = FrechetMeanPlanRequest(dataset=about, privacy=PlanPrivacy(epsilon=0.5, delta=1e-6))
plan = plan_frechet_mean.sync(client=client, body=asked)

question = FrechetMeanRequest(dataset=about, privacy=RequestedPrivacy(epsilon=0.5, delta=1e-6))
job = estimate_frechet_mean.sync(client=client, body=question, idempotency_key="once", prefer="wait=240")
read = read_job.sync(job.id, client=client)
assert type(read) is FrechetMeanJob  # of one kind, with its own answer

nowhere = FrechetMeanRequest(dataset=DatasetRef("ds_none"), privacy=RequestedPrivacy(epsilon=0.5, delta=1e-6))
problem = estimate_frechet_mean.sync(client=client, body=nowhere, idempotency_key="none")
assert isinstance(problem, ProblemDocument)

print(
    json.dumps(
        {
            "dataset": dataset.id,
            "n": dataset.n,
            "schema": dataset.schema.to_dict(),
            "epsilon": plan.privacy.epsilon,
            "state": read.state,
            "mean": read.estimate.point,
            "problem": problem.type_,
        }
    )
)
