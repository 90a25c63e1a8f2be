"""What a typed program says to the client: checked by pyright strict and by mypy, and never run."""

from ssl import create_default_context

import numpy as np

from privest_client import (
    AsyncClient,
    Client,
    FrechetMean,
    LinearClassifier,
    Score,
    Subspace,
    __version__,
    load,
    table,
)


def token() -> str:
    return __version__


def ask(client: Client, rows: object) -> Score:
    people = client.upload(table(rows, columns={"sex": {"categories": ["f", "m"]}}), name="People")
    mean: FrechetMean = client.mean(people, ["age", "bmi"], epsilon=0.5)
    full: FrechetMean = client.frechet_mean(people.id, epsilon=0.5, solver="rsgd", rate=0.1)
    directions: Subspace = client.pca(people, rank=2, epsilon=1)
    found: LinearClassifier = client.classify(people, "sex", epsilon=1, delta=1e-6)
    low, high = mean.interval(0.9)["age"]
    total: np.float64 = directions.basis.sum() + found.predict_proba(rows).sum() + full.radius_95
    print(low, high, total, found.covariance, client.budget().remaining.epsilon, load("mean.json"))
    print(found.predict(rows), people.n)
    return client.score(people, found, epsilon=1, metric="auc")


async def later(client: AsyncClient) -> float:
    async with client:
        found = await client.robust_pca("ds_1", rank=2, epsilon=1.0, center=True)
        await client.datasets.grant("ds_1", "ana_1", epsilon=1.0)
    return found.radius_95


CLIENTS = [
    Client("https://privest.example", token, verify=create_default_context(), proxy="http://127.0.0.1:3128"),
    Client.from_env(progress=False),
]
