"""Palmer penguins, by Kristen Gorman and others (CC0): 344 birds, with gaps and texts, and a schema."""

from pathlib import Path
from typing import Any

CSV = Path(__file__).with_name("penguins.csv").read_bytes()
"""The file as its authors give it: eight columns, `NA` for what is missing."""


def number(name: str, low: float, high: float, fill: float, kind: str = "number") -> dict[str, Any]:
    """A column of numbers with gaps, which a public value fills."""
    return {"name": name, "type": kind, "low": low, "high": high, "missing": "filled", "fill": fill}


SCHEMA: dict[str, Any] = {
    "kind": "table",
    "columns": [
        {"name": "species", "type": "category", "categories": ["Adelie", "Chinstrap", "Gentoo"]},
        {"name": "island", "type": "category", "categories": ["Biscoe", "Dream", "Torgersen"]},
        number("bill_length_mm", 30, 60, 44),
        number("bill_depth_mm", 12, 22, 17),
        number("flipper_length_mm", 170, 235, 200, "integer"),
        number("body_mass_g", 2500, 6500, 4200, "integer"),
        {"name": "sex", "type": "category", "categories": ["female", "male"], "missing": "category"},
        {"name": "year", "type": "integer", "low": 2007, "high": 2009},
    ],
}
"""What their owner may know without a look at the rows."""
