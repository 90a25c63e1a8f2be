"""Bounds and scales that float64 cannot resolve: schemas of every kind are refused at the upload."""

import pytest

from privest_service.datasets.schemas import SCHEMA
from privest_service.upload_errors import RefusedUploadError

PLANE = {"kind": "points", "manifold": {"name": "euclidean", "dim": 2}}
LABELLED = {"kind": "labelled", "features": ["a", "b"], "label": "y", "classes": ["0", "1"]}
IMAGES = {
    "kind": "points",
    "manifold": {"name": "spd", "dim": 8},
    "raw": {"transform": "covariance-descriptor", "height": 2, "width": 2},
}


@pytest.mark.parametrize(
    ("schema", "field"),
    [
        (PLANE | {"radius": 5e-324}, "radius"),
        (PLANE | {"center": [1e17, 0.0], "radius": 1.0}, "radius"),
        (PLANE | {"center": [1e300, 0.0]}, "center"),
        ({"kind": "vectors", "dim": 2, "norm_bound": 1e-310}, "norm_bound"),
        ({"kind": "partial-vectors", "dim": 2, "known": 1e-310}, "known"),
        (LABELLED | {"scale": [1.0, 1e-320]}, "b"),
        (LABELLED | {"scale": [1e150, 1.0]}, "a"),
        (LABELLED | {"mean": [1e17, 0.0], "scale": [1.0, 1.0]}, "a"),
        (LABELLED | {"scale": [1.0, 1.0], "norm_bound": 1e-55}, "norm_bound"),
        (IMAGES | {"raw": IMAGES["raw"] | {"largest": 1e-310}}, "largest"),
        (
            {"kind": "table", "columns": [{"name": "a", "type": "number", "low": 1e17, "high": 1e17 + 496}]},
            "a",
        ),
    ],
    ids=lambda given: given if isinstance(given, str) else given["kind"],
)
def test_the_upload_is_refused_and_the_field_named(schema, field):
    declared = SCHEMA.validate_python(schema)  # as stored schemas are read, whatever they hold
    with pytest.raises(RefusedUploadError) as refused:
        declared.intake()
    assert [fault.field for fault in refused.value.faults] == [field]


@pytest.mark.parametrize("schema", [PLANE | {"radius": 2.0}, LABELLED | {"scale": [1e50, 1e-20]}, IMAGES])
def test_others_are_not(schema):
    SCHEMA.validate_python(schema).intake()
