"""The import specification: it says how raw records of a file become records of a dataset."""

from dataclasses import dataclass, replace

from privest.data.metadata import DatasetMetadata
from privest.data.transforms import Transform
from privest_service.datasets.readers import Layout


@dataclass(frozen=True)
class ImportSpec:
    """A schema's rules for the files that are uploaded under it.

    Attributes:
        layout: of raw records.
        shape: of records; how many there are is not known yet.
        transform: that makes a record of a raw one, unless they are the same.
        places: rows in a record that is a group of them, by the layout's unit; None where a row is a record.
    """

    layout: Layout
    shape: DatasetMetadata
    transform: Transform | None = None
    places: int | None = None

    def of_csv(self, header: bool | None) -> "ImportSpec":
        """A copy for a csv file whose uploader said whether its first line names the columns."""
        return replace(self, layout=replace(self.layout, header=header))

    @property
    def is_changed(self) -> bool:
        """Whether what is stored is made of what was uploaded."""
        return self.transform is not None or self.places is not None
