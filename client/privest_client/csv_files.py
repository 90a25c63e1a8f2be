"""csv files as columns of texts, from which a schema is proposed. The service reads the file itself."""

import csv
import gzip
import io
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from privest_client.cells import is_gap
from privest_client.errors import SchemaMismatch

ENDINGS = (".csv", ".tsv", ".txt")
"""How names of csv files end; `.gz` may follow."""

_DELIMITERS = ",;\t|"
_GZIP = b"\x1f\x8b"
_MARKS = {b"\xef\xbb\xbf": "utf-8-sig", b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16"}

TOTALS = frozenset(
    (
        *(
            "total",
            "totals",
            "grand total",
            "subtotal",
            "sum",
            "average",
            "mean",
            "summe",
            "gesamt",
            "insgesamt",
        ),
        *(
            "gesamtsumme",
            "durchschnitt",
            "mittelwert",
            "somme",
            "moyenne",
            "totale",
            "suma",
            "soma",
            "totaal",
        ),
    )
)
"""First cells, in small letters, of the row that a spreadsheet adds below the records."""


def columns_of(path: Path) -> tuple[dict[str, list[str]], int]:
    """The columns of a csv file, as texts without spaces around them, and the number of its last line.

    The encoding and the delimiter are recognised. Where lines end with a delimiter and the first does not, or
    the other way round, blank cells make up the difference.

    Raises:
        SchemaMismatch: it has no lines, or lines of different width.
    """
    text = _text(path)
    rows = _rows(text, _delimiter(text))
    line, header = next(rows, (0, list[str]()))
    if not header:
        raise SchemaMismatch(f"{path.name} has no lines")
    records, width = list[Sequence[str]](), len(_without_blanks(header))
    for line, row in rows:
        cells = row if len(row) <= width else _without_blanks(row, width)
        if len(cells) != width and not (width < len(cells) <= len(header)):
            raise SchemaMismatch(
                f"{path.name} has {len(row)} cells in line {line}, and {width} columns in its header"
            )
        records.append(cells[:width])
    names = header[:width]
    if twice := [name for name in dict.fromkeys(names) if names.count(name) > 1]:
        raise SchemaMismatch(f"{path.name} has several columns {', '.join(map(repr, twice))}: rename them")
    return {name: [cells[place] for cells in records] for place, name in enumerate(names)}, line


def _text(path: Path) -> str:
    content = path.read_bytes()
    if content.startswith(_GZIP):
        content = gzip.decompress(content)
    marked = next((name for mark, name in _MARKS.items() if content.startswith(mark)), None)
    if marked:
        return content.decode(marked)
    try:
        return content.decode()
    except UnicodeDecodeError:
        return content.decode("cp1252")


def _delimiter(text: str) -> str:
    """The delimiter by which the first line with anything on it has most cells."""
    first = text.lstrip().partition("\n")[0]
    return max(_DELIMITERS, key=lambda each: len(next(csv.reader([first], delimiter=each), [])))


def _rows(text: str, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """Rows with anything on them, each with its number as a spreadsheet counts."""
    csv.field_size_limit(2**21)
    for line, row in enumerate(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter), start=1):
        if len(row) > 1 or (row and row[0].strip()):
            yield line, [cell.strip() for cell in row]


def _without_blanks(cells: list[str], least: int = 0) -> list[str]:
    """Cells without blank ones at their end, but at least so many."""
    count = len(cells)
    while count > least and not cells[count - 1]:
        count -= 1
    return cells[:count]


def last_is_total(columns: Sequence[Sequence[object]], declared: Mapping[str, Any]) -> bool:
    """Whether the last row begins with a word for a total, and the row before it with something else.

    Args:
        columns: of all rows.
        declared: what is said of columns, by names: a category is no such word.
    """
    listed = (said.get("categories") or () for said in declared.values() if isinstance(said, Mapping))
    known = {str(each).casefold() for categories in listed for each in categories}
    n = len(columns[0]) if columns else 0
    words = (
        [next((word for column in columns if (word := _word(column[row]))), "") for row in (n - 2, n - 1)]
        if n > 1
        else []
    )
    return bool(words) and words[1] in TOTALS - known and words[0] != words[1]


def _word(cell: object) -> str:
    return "" if is_gap(cell) else str(cell).strip().rstrip(":").strip().casefold()
