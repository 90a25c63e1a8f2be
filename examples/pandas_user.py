"""A pandas user: a frame goes in, a frame of coefficients comes out, and predictions for another frame.

Asks the service at PRIVEST_URL with the owner's key in PRIVEST_KEY.
"""

import os

import numpy as np
import pandas as pd

from privest_client import Client

FEATURES = ["age", "dose", "pressure"]
# What is known without these patients: never their own means and deviations, which would tell of them.
MEAN, SCALE = [50.0, 2.0, 130.0], [15.0, 1.0, 20.0]


def patients(n: int, seed: int) -> pd.DataFrame:
    """Invented ones, who stand for yours."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(MEAN + SCALE * rng.standard_normal((n, 3)), columns=FEATURES)
    chance = 1 / (1 + np.exp(-(0.06 * (frame["age"] - 50) - 0.8 * (frame["dose"] - 2))))
    return frame.assign(ill=np.where(rng.random(n) < chance, "yes", "no"))


def main() -> None:
    """Register, look at the price, ask, and use the answer."""
    with Client(os.environ["PRIVEST_URL"], os.environ["PRIVEST_KEY"]) as client:
        dataset = client.datasets.upload(
            patients(5000, seed=0),
            label="ill",
            classes=["no", "yes"],
            mean=MEAN,
            scale=SCALE,
            confirm=True,  # of the names of the columns, which is all that was read off the frame
            name="Patients of the pandas example",
        )
        print(client.plan("logistic-regression", dataset, epsilon=0.5))
        fit = client.logistic_regression(dataset, epsilon=0.5)

        table = pd.DataFrame(
            {"coefficient": fit.coefficients, "error": fit.standard_errors[:-1]}, index=FEATURES
        )
        table["low"] = table["coefficient"] - 1.96 * table["error"]
        table["high"] = table["coefficient"] + 1.96 * table["error"]
        print(table.round(3))

        others = patients(1000, seed=1)  # whom it has not seen, and who are not private here
        right = np.mean(fit.predict(others[FEATURES].to_numpy()) == others["ill"])
        print(f"right about {right:.0%} of others, for ε = {fit.privacy.epsilon:g}")
        print(client.budget())


if __name__ == "__main__":
    main()
