"""Published answers from Python: an analyst publishes, a reader reads, and a refresh is asked for."""

import io

import pandas as pd
import pytest

from privest_client import Client, GrantRefuses, InvalidRequest, NotFound
from testing.server import Caller, Server


def test_a_table_is_published_read_refreshed_and_withdrawn(
    client: Client, owner: Caller, server: Server
) -> None:
    ada, dashboards = server.analyst(), server.analyst()
    rows = pd.DataFrame({"age": [40.0, 50.0] * 100})
    patients = client.upload(rows, columns={"age": {"low": 0, "high": 110}}, confirm=True)
    name = f"patients_{owner.id.lower()}"
    with Client(server.url, ada.key) as asking, Client(server.url, dashboards.key) as reading:
        client.datasets.grant(patients, ada.id)
        answer = asking.mean(patients, ["age"], epsilon=0.3)
        with pytest.raises(GrantRefuses):
            asking.published.publish(answer, name)
        client.datasets.grant(patients, ada.id, publish="allowed")
        told = asking.published.publish(answer, name, readers=[dashboards.id], sql=True)
        assert (told.receipt, told.sql, told.is_open) == (answer.job.id, True, True)
        (value,) = reading.published.read(name).values
        assert (value.item, value.value) == ("age", answer.columns["age"])
        frame = pd.read_csv(io.BytesIO(reading.published.file(name)))
        assert frame["value"].tolist() == [value.value]
        pd.testing.assert_frame_equal(
            pd.read_parquet(io.BytesIO(reading.published.file(name, "parquet")))[
                ["item", "value", "low", "high"]
            ],
            frame[["item", "value", "low", "high"]],
        )
        same = asking.mean(patients, ["age"], epsilon=0.3)
        assert asking.published.publish(same, name, readers=[dashboards.id], sql=True) == told
        fresh = asking.frechet_mean(patients, ["age"], epsilon=0.3, reuse=False)
        asking.published.publish(fresh, name, readers=[dashboards.id], sql=True)
        assert reading.published.read(name).receipt == fresh.job.id
        assert [each.name for each in reading.published.list()] == [name]
        assert [each.name for each in client.published.list()] == [name]
        client.published.withdraw(name)
        with pytest.raises(NotFound):
            reading.published.read(name)
        for wrong in ("Patients", "../me", ""):
            with pytest.raises(InvalidRequest):
                reading.published.read(wrong)
