"""A pandas user: a frame goes in, a frame of coefficients comes out, and predictions for another frame.

Asks the service at PRIVEST_URL with the owner's key in PRIVEST_KEY.
"""

import numpy as np
import pandas as pd

from privest_client import Client

# What is known without these patients: within which bounds their numbers are, and what there may be.
KNOWN = {
    "age": {"low": 0, "high": 100},
    "dose": {"low": -2, "high": 6},
    "pressure": {"low": 50, "high": 210},
    "ill": {"categories": ["no", "yes"]},
}


def patients(n: int, seed: int) -> pd.DataFrame:
    """Invented ones, who stand for yours."""
    rng = np.random.default_rng(seed)
    values = [50.0, 2.0, 130.0] + [15.0, 1.0, 20.0] * rng.standard_normal((n, 3))
    frame = pd.DataFrame(values, columns=["age", "dose", "pressure"])
    chance = 1 / (1 + np.exp(-(0.06 * (frame["age"] - 50) - 0.8 * (frame["dose"] - 2))))
    return frame.assign(ill=np.where(rng.random(n) < chance, "yes", "no"))


def main() -> None:
    """Register, look at the price, ask, and use the answer."""
    with Client.from_env() as client:
        dataset = client.upload(
            patients(5000, seed=0),
            columns=KNOWN,
            confirm=True,  # of names and types, which is all that was read off the frame
            name="Patients of the pandas example",
        )
        print(client.plan("logistic-regression", dataset, label="ill", epsilon=0.5))
        fit = client.classify(dataset, "ill", epsilon=0.5)
        print(fit.to_frame().set_index("name").round(3))

        others = patients(1000, seed=1)  # whom it has not seen, and who are not private here
        right = np.mean(fit.predict(others) == others["ill"])
        print(f"right about {right:.0%} of others, for ε = {fit.privacy.epsilon:g}")
        print(client.budget())


if __name__ == "__main__":
    main()
