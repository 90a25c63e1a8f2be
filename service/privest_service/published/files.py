"""Published answers as files, with the columns of the view `v_published`; binary ones by a worker."""

import csv
import io
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from privest_service.datasets.dummy_files import harmless
from privest_service.ledger.units import EPSILON, PROBABILITY, as_exact, number_above
from privest_service.published.binary import COLUMNS, Ending
from privest_service.published.models import PublishedValue
from privest_service.published.service import Published

MEDIA: dict[Ending, str] = {
    "csv": "text/csv",
    "parquet": "application/vnd.apache.parquet",
    "arrow": "application/vnd.apache.arrow.file",
}


def records(published: Published, values: Sequence[PublishedValue]) -> list[dict[str, Any]]:
    """The rows of a table, by column. What is told of the whole answer stands in each of them."""
    each = published.publication
    whole = {
        "name": each.name,
        "off_by": each.off_by,
        "epsilon": as_exact(each.epsilon, EPSILON),
        "delta": as_exact(each.delta, PROBABILITY),
        "estimate": published.kind,
        "publisher_id": each.publisher_id,
        "publisher": published.publisher,
        "receipt": each.job_id,
        "answered_at": each.answered_at,
        "published_at": each.published_at,
    }
    own = ("place", "item", "measure", "value", "low", "high", "unit")
    return [whole | {name: getattr(value, name) for name in own} for value in values]


def as_csv(rows: Sequence[dict[str, Any]]) -> bytes:
    """A table as csv: the price exactly, and no cell that a spreadsheet takes for a formula."""
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(COLUMNS)
    for row in rows:
        writer.writerow(_cell(row[name]) for name in COLUMNS)
    return text.getvalue().encode()


def _cell(value: Any) -> Any:
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, str):
        return harmless(value)
    return value.isoformat() if hasattr(value, "isoformat") else value


def as_floats(rows: Sequence[dict[str, Any]]) -> dict[str, list[Any]]:
    """A table by columns, for programs that count in floats: none of the price is less than it is."""
    columns = {name: [row[name] for row in rows] for name in COLUMNS}
    for name, per_one in (("epsilon", EPSILON), ("delta", PROBABILITY)):
        columns[name] = [number_above(int(value * per_one), per_one) for value in columns[name]]
    return columns
