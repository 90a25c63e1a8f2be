"""Directions of columns without bounds: as if scales were declared, but for the price."""

import numpy as np
import pytest

from privest.data.metadata import PartialVectorsMetadata, VectorsMetadata
from privest.data.records import Records
from privest.data.table_metadata import TableChoice, TableMetadata, metadata_for
from privest.data.tables import Column
from privest.estimators import federation
from privest.estimators.subspace.matrix_completion import MATRIX_COMPLETION, MatrixCompletionSpec
from privest.estimators.subspace.robust_pca import ROBUST_PCA, RobustPCASpec
from privest.manifolds.stiefel_grassmann import Grassmann
from privest.optim.pooling import Pooled
from privest.privacy.accounting import PrivacyTarget
from privest.privacy.gate import Gate
from testing.noise import ScaledNoise

N, WIDTH, RANK = 20_000, 6, 2
UNITS = np.array([1e-3, 1.0, 50.0, 800.0, 1e6, 7.0])
MIDDLES = np.array([0.5, -3.0, 2007.0, 4200.0, -1e7, 0.0])


def rows(rng, count=N):
    """Numbers about a plane, in columns of different units."""
    plane = np.linalg.qr(np.random.default_rng(1).standard_normal((WIDTH, RANK)))[0]
    inner = rng.standard_normal((count, RANK)) @ plane.T + 0.15 * rng.standard_normal((count, WIDTH))
    return MIDDLES + UNITS * inner


def table(kind, count, *wide):
    """Without bounds, or with bounds at so many times four spreads of all columns, or of each."""
    ends = [(None, None)] * WIDTH
    if wide:
        reach = 4 * np.resize(wide, WIDTH) * UNITS
        ends = list(zip((MIDDLES - 0.6 * reach).tolist(), (MIDDLES + 1.4 * reach).tolist(), strict=True))
    columns = tuple(
        Column(f"c{at}", "number", *end, missing="filled", fill=0.0) for at, end in enumerate(ends)
    )
    if kind is VectorsMetadata:
        columns = tuple(Column(each.name, "number", each.low, each.high) for each in columns)
    return metadata_for(kind, TableMetadata(count, columns), TableChoice())


def answered(estimator, plan, shape, own, seed):
    gate = Gate(
        Records(own, 1, recipe=shape.recipe), plan.statistics, plan.releases, ScaledNoise(seed=[33, seed])
    )
    found = estimator.run(plan, gate)
    assert gate.remaining == 0
    return found.in_columns(shape.recipe, plan.expected_error)


def angle(found, own):
    """How far a basis is from the leading one of the rows in its units, in radians."""
    images = (own - found.centers) / found.scales
    images = np.where(np.isnan(images), 0.0, images)
    images -= images.mean(axis=0)
    images /= np.linalg.norm(images, axis=1)[:, None]
    true = np.linalg.svd(images, full_matrices=False)[2][:RANK].T
    return float(Grassmann(WIDTH, RANK).dist(true, found.basis))


@pytest.mark.few(1)
@pytest.mark.parametrize("seed", range(3))
def test_directions_are_found_whatever_the_columns_units(seed):
    own, target = rows(np.random.default_rng(2)), PrivacyTarget(1.0, 1e-6)
    shape = table(VectorsMetadata, N)
    plan = ROBUST_PCA.plan(RobustPCASpec(RANK), shape, target)
    found = answered(ROBUST_PCA, plan, shape, own, seed)
    assert found.columns == tuple(f"c{at}" for at in range(WIDTH))
    assert angle(found, own) < max(0.1, found.uncertainty.radius_95)
    assert (np.abs(found.centers - MIDDLES) < UNITS).all()
    assert np.allclose(np.log(found.scales), np.log(own.std(axis=0)), atol=1.0)
    assert "in units of a scale for each column" in found.uncertainty.of


@pytest.mark.parametrize("kind", [VectorsMetadata, PartialVectorsMetadata])
@pytest.mark.parametrize("wide", [1.0, 1000.0])
def test_declared_bounds_are_the_units_and_nothing_is_spent_on_others(kind, wide):
    shape = table(kind, N, wide)
    estimator, spec = (
        (ROBUST_PCA, RobustPCASpec(RANK))
        if kind is VectorsMetadata
        else (MATRIX_COMPLETION, MatrixCompletionSpec(RANK))
    )
    plan = estimator.plan(spec, shape, PrivacyTarget(0.3, 1e-6))
    assert plan.scales is None
    assert plan.finding is None
    assert not any("columns without low and high" in words for words in plan.warnings)


@pytest.mark.parametrize(
    "spec", [RobustPCASpec(RANK, solver="sggd"), RobustPCASpec(RANK, solver="md-reaper")]
)
def test_other_solvers_find_scales_too(spec):
    own, shape = rows(np.random.default_rng(2)), table(VectorsMetadata, N)
    plan = ROBUST_PCA.plan(spec, shape, PrivacyTarget(3.0, 1e-6))
    assert angle(answered(ROBUST_PCA, plan, shape, own, 0), own) < 0.2


def test_what_has_no_bounds_is_looked_at_with_the_others_unless_noise_hides_so_many():
    columns = (*(Column(f"c{at}", "number", 0.0, 1.0) for at in range(200)), Column("open", "number"))
    for count, looked in ((2_000, 1), (200_000, 201)):
        shape = metadata_for(VectorsMetadata, TableMetadata(count, columns), TableChoice())
        plan = ROBUST_PCA.plan(RobustPCASpec(RANK), shape, PrivacyTarget(1.0, 1e-6))
        assert len(plan.scales.names) == looked


@pytest.mark.parametrize("spec", [MatrixCompletionSpec(RANK), MatrixCompletionSpec(RANK, steps=4)])
def test_completion_finds_scales_of_what_is_known(spec):
    rng = np.random.default_rng(4)
    own = rows(rng)
    own[rng.random(own.shape) < 0.3] = np.nan
    shape = table(PartialVectorsMetadata, N)
    plan = MATRIX_COMPLETION.plan(spec, shape, PrivacyTarget(2.0, 1e-6))
    full = rows(np.random.default_rng(4))
    for seed in range(6):
        found = answered(MATRIX_COMPLETION, plan, shape, own, seed)
        off = np.abs(np.log(found.scales) - np.log(np.nanstd(own, axis=0)))
        assert np.median(off) < 0.3
        assert off.max() < 1.0
        assert angle(found, full) < 0.3
        assert not any("so much noise" in words for words in found.uncertainty.warnings)


def test_units_found_through_much_noise_are_said():
    own = rows(np.random.default_rng(2))
    for epsilon, told in ((1.0, False), (0.2, True)):
        shape = table(VectorsMetadata, N)
        plan = ROBUST_PCA.plan(RobustPCASpec(RANK), shape, PrivacyTarget(epsilon, 1e-6))
        found = answered(ROBUST_PCA, plan, shape, own, 0)
        assert found.scales is not None
        assert any("centre and scale of c0" in words for words in found.uncertainty.warnings) == told


@pytest.mark.parametrize("epsilon", [0.01, 1.0])
def test_hostile_tables_have_finite_answers(epsilon):
    rng = np.random.default_rng(5)
    for own in (
        np.zeros((10, WIDTH)),
        np.full((3_000, WIDTH), 7.0),
        np.where(rng.random((3_000, WIDTH)) < 0.5, -1e300, 1e300),
        np.vstack([np.zeros((2_999, WIDTH)), np.full((1, WIDTH), 1e300)]),
    ):
        shape, target = table(VectorsMetadata, len(own)), PrivacyTarget(epsilon, 1e-6)
        if epsilon < 1 or len(own) < 100:
            with pytest.raises(ValueError, match="so much noise would hide"):
                ROBUST_PCA.plan(RobustPCASpec(RANK), shape, target)
            continue
        plan = ROBUST_PCA.plan(RobustPCASpec(RANK, explained=True), shape, target)
        found = answered(ROBUST_PCA, plan, shape, own, 1)
        for each in (found.basis, found.centers, found.scales, found.center, found.explained):
            assert np.isfinite(each).all()
        assert np.isfinite(found.uncertainty.radius_95)


def test_several_owners_have_one_scale():
    rng, target = np.random.default_rng(6), PrivacyTarget(1.0, 1e-6)
    parts = [rows(rng, 8_000), rows(rng, 12_000)]
    shapes = [table(VectorsMetadata, len(own)) for own in parts]
    joint = federation.plan(
        lambda shape, share: ROBUST_PCA.plan(RobustPCASpec(RANK), shape, share), shapes, [target, target]
    )
    gates = [
        Gate(
            Records(own, 1, recipe=shape.recipe), joint.statistics, part.releases, ScaledNoise(seed=[34, at])
        )
        for at, (own, shape, part) in enumerate(zip(parts, shapes, joint.parts, strict=True))
    ]
    found = ROBUST_PCA.run(joint.course, Pooled(gates, joint.weights))
    found = found.in_columns(shapes[0].recipe, joint.course.expected_error)
    assert angle(found, np.vstack(parts)) < max(0.1, found.uncertainty.radius_95)


def test_too_many_columns_without_bounds_are_refused_with_a_word():
    columns = tuple(Column(f"c{at}", "number") for at in range(1_001))
    shape = metadata_for(VectorsMetadata, TableMetadata(5_000, columns), TableChoice())
    with pytest.raises(ValueError, match="at most 1000 columns may lack low and high"):
        ROBUST_PCA.plan(RobustPCASpec(RANK), shape, PrivacyTarget(1.0, 1e-6))
