"""Bounds and scales that float64 cannot resolve: refused for every type of dataset, in every plan."""

from math import inf, nan, nextafter

import numpy as np
import pytest

from privest.data.float_limits import bounds_faults, number_faults, scale_faults, spread_faults
from privest.data.metadata import (
    LabelledMetadata,
    PartialVectorsMetadata,
    PointsMetadata,
    VectorsMetadata,
)
from privest.data.table_metadata import TableChoice, TableMetadata, metadata_for
from privest.data.tables import Column
from privest.data.transforms import CovarianceDescriptors, WindowCovariances
from privest.estimators.registry import ESTIMATORS
from privest.privacy.accounting import PrivacyTarget

PLANE, SPD = {"name": "euclidean", "dim": 2}, {"name": "spd", "dim": 2}
WASSERSTEIN = SPD | {"metric": "bures-wasserstein"}
CENTER = [1e17, 0.0]


def labelled(**facts):
    return LabelledMetadata(100, ("age", "pay"), "y", ("0", "1"), **facts)


def table(*columns):
    return TableMetadata(100, (*columns, Column("y", "boolean")))


UNRESOLVED = {
    "bounds 31 units in the last place apart": (table(Column("a", "number", 1e17, 1e17 + 496)), "a"),
    "integers too close": (table(Column("a", "integer", 1e15, 1e15 + 9e5)), "a"),
    "bounds whose half is 0": (table(Column("a", "number", 0.0, 5e-324)), "a"),
    "bounds whose width squares to 0": (table(Column("a", "number", -1e-170, 1e-170)), "a"),
    "bounds whose width overflows": (table(Column("a", "number", -1.7e308, 1.7e308)), "a"),
    "one bound too far off": (table(Column("a", "number", None, 1e300)), "a"),
    "a fill too far off": (table(Column("a", "number", missing="filled", fill=-1e300)), "a"),
    "a denormal radius": (PointsMetadata(100, PLANE, radius=1e-310), "radius"),
    "a radius that its centre swallows": (PointsMetadata(100, PLANE, CENTER, 1.0), "radius"),
    "a radius that curved space swallows": (PointsMetadata(100, SPD, radius=1e-12), "radius"),
    "a radius that a matrix swallows": (
        PointsMetadata(100, WASSERSTEIN, [[1e40, 0.0], [0.0, 1e40]], 1.0),
        "radius",
    ),
    "a centre too far off": (PointsMetadata(100, PLANE, [1e200, 0.0]), "center"),
    "a denormal norm bound": (VectorsMetadata(100, 2, 5e-324), "norm_bound"),
    "a denormal share": (PartialVectorsMetadata(100, 2, 5e-324), "known"),
    "a denormal norm bound of features": (labelled(norm_bound=1e-320), "norm_bound"),
    "a denormal scale": (labelled(scale=(1.0, 5e-324)), "pay"),
    "a scale too large": (labelled(scale=(1e101, 1.0)), "age"),
    "a mean too far off": (labelled(mean=(1.0, -1e150)), "pay"),
    "a norm bound that scales leave no room for": (
        labelled(scale=(1.0, 1.0), norm_bound=1e-55),
        "norm_bound",
    ),
    "a mean that swallows the norm bound": (labelled(mean=(1.0, 0.0), norm_bound=1e-12), "age"),
    "a scale that its mean swallows": (labelled(mean=(1e17, 0.0), scale=(1.0, 1.0)), "age"),
}

unresolved = pytest.mark.parametrize(("shape", "field"), UNRESOLVED.values(), ids=UNRESOLVED)


@unresolved
def test_the_fault_names_its_field_and_says_what_to_do(shape, field):
    (fault,) = dict.fromkeys(shape.faults)
    assert fault.field == field
    assert any(advice in fault.rule for advice in (": declare", "Declare"))


@unresolved
@pytest.mark.parametrize("name", ESTIMATORS)
def test_no_estimator_plans_on_it(shape, field, name):
    """Also where the schema was stored before there was this rule: plans are refused before any charge."""
    estimator = ESTIMATORS[name]
    if shape.kind == "table":
        label = "y" if estimator.metadata is LabelledMetadata else None
        if estimator.metadata is PartialVectorsMetadata:
            shape = TableMetadata(100, (*shape.columns, Column("b", "number", 0.0, 1.0)))
        shape = metadata_for(estimator.metadata, shape, TableChoice(label=label))
    elif not isinstance(shape, estimator.metadata):
        pytest.skip("other datasets")
    with pytest.raises(ValueError, match=f"{field} (must be|has low|is too small)"):
        estimator.plan(spec_of(estimator), shape, PrivacyTarget(1.0, 1e-6))


def spec_of(estimator):
    """Options of a question, for estimators that need some."""
    options = {
        "robust-pca": {"rank": 1},
        "matrix-completion": {"rank": 1},
        "classifier-score": {"coefficients": [1.0, 1.0], "intercept": 0.0},
        "classifier-selection": {"candidates": [{}, {"solver": "clipped"}]},
    }
    return estimator.spec.of(options.get(estimator.name, {}))


@pytest.mark.parametrize("name", ["bounds", "frechet-mean", "robust-pca"])
def test_a_stored_column_that_is_not_asked_about_is_no_hindrance(name):
    shape = table(
        Column("a", "number", 1e17, 1e17 + 496), Column("b", "number", 0.0, 1.0), Column("c", "date")
    )
    chosen = metadata_for(ESTIMATORS[name].metadata, shape, TableChoice(columns=("b", "y")))
    assert shape.faults
    assert not chosen.faults
    ESTIMATORS[name].plan(spec_of(ESTIMATORS[name]), chosen, PrivacyTarget(10.0, 1e-6))


@pytest.mark.parametrize(
    "shape",
    [
        table(Column("a", "number", 1e17, 1e17 * (1 + 2e-9)), Column("b", "date", 20_000.0, 20_001.0)),
        table(Column("a", "number", -1e100, 1e100), Column("b", "number", -1e-100, 1e-100)),
        table(
            Column("a", "number"), Column("b", "number", 5.0), Column("c", "category", categories=("x", "z"))
        ),
        PointsMetadata(100, PLANE, CENTER, 1e9),
        PointsMetadata(100, SPD, [[1e20, 0.0], [0.0, 1e20]], 1.0),
        PointsMetadata(100, WASSERSTEIN, [[1e-30, 0.0], [0.0, 1e-30]], 1e-16),
        labelled(mean=(1e17, 0.0), scale=(1e9, 1e-90)),
    ],
    ids=lambda shape: shape.kind,
)
def test_what_float64_resolves_is_accepted(shape):
    assert shape.faults == ()


def test_the_rule_has_no_gap():
    """Numbers that are none fail it, too, and at the edge the least step decides."""
    assert [*number_faults("x", nan), *number_faults("x", inf)]
    assert all([*scale_faults("x", scale)] for scale in (nan, inf, 0.0, -1.0, nextafter(1e-100, 0)))
    assert all(
        [*bounds_faults("x", *ends)] for ends in ((nan, 1.0), (0.0, nan), (-inf, 1.0), (1.0, 1.0), (2.0, 1.0))
    )
    assert all([*spread_faults("x", *each)] for each in ((nan, 1.0), (0.0, nan), (inf, 1.0)))
    edge = 1.0 - 1e-9
    assert not [*bounds_faults("x", nextafter(edge, 0), 1.0)]
    assert [*bounds_faults("x", nextafter(edge, 1) + 2e-16, 1.0)]


def test_raw_records_have_resolved_scales():
    assert [fault.field for fault in CovarianceDescriptors(2, 2, largest=1e-310).faults] == ["largest"]
    assert [fault.field for fault in WindowCovariances(2, 2, scale=1e-310).faults] == ["scale"]
    assert not [*CovarianceDescriptors(2, 2).faults, *WindowCovariances(2, 2).faults]


def test_between_the_closest_bounds_histograms_have_rising_nodes():
    for low in (0.0, 1.0, -1e17, 1e100):
        high = low + max(2e-9 * abs(low), 1e-100)
        nodes = np.linspace(low, high, 1024)
        assert (np.diff(nodes) > 0).all()
