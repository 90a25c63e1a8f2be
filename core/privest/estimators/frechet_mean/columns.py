"""Means of columns: in units that the run finds for each of them, and back in those of the records."""

from dataclasses import dataclass, replace
from math import hypot, sqrt

import numpy as np

from privest.arrays import Array
from privest.estimators.column_scales import Columns, ColumnScales, StandardisedOracle
from privest.estimators.frechet_mean.found_clip import Stage, Surroundings, descent
from privest.estimators.frechet_mean.uncertainty import REACH
from privest.estimators.uncertainty import Uncertainty
from privest.manifolds import Euclidean
from privest.optim.ball import Ball
from privest.privacy.mechanisms import Release
from privest.privacy.oracle import Oracle
from privest.tables.answers import alike
from privest.tables.recipe import Recipe

_ANYWHERE = 1e100
"""How far off the mean of a column is that noise hides: all that squares of float64 can hold."""


@dataclass(frozen=True)
class ColumnsMean:
    """The mean of columns, as a run found it.

    Attributes:
        point: (columns,) in the units of the records.
        scales: (columns,) units in which `uncertainty` is.
        deviations: (columns,) root mean square errors, in the units of the records.
        uncertainty: of the mean.
    """

    point: Array
    scales: Array
    deviations: Array
    uncertainty: Uncertainty


def columns_mean(
    scales: ColumnScales, recipe: Recipe, gate: Oracle, looks: tuple[Release, ...], stages: tuple[Stage, ...]
) -> ColumnsMean:
    """Find centres and scales, and descend in these units from the centres.

    Args:
        scales: to be found.
        recipe: which made records of a table's rows.
        gate: releases the statistics of `scales`, and `Standardised` ones of a descent.
        looks: releases of the former.
        stages: of the descent.
    """
    found = scales.find(gate, looks)
    width = recipe.width
    noise = sum(stage.deviation**-2 for stage in stages) ** -0.5
    own = found.clips(sqrt(width) * noise)
    columns = Columns(scales.among_all(own.center, 0.0), scales.among_all(own.scale, 1.0), own.most)
    # Images are in this ball.
    ball = Ball(Euclidean(width), np.zeros(width), columns.most * sqrt(width))
    around = Surroundings(ball, REACH * ball.radius, REACH * ball.radius)
    image, told = descent(around, StandardisedOracle(gate, columns), curvature=(0, 0), stages=stages)
    # Nobody knows where a column is that noise hides.
    unseen = _ANYWHERE / own.scale
    cut = scales.among_all(np.where(found.places.seen, found.cut(own), unseen), 0.0)
    drawn, moved = sqrt(float(np.dot(cut, cut))), told.moved or 0.0
    each = np.hypot(alike(width, told.noise, moved), cut)
    told = replace(
        told,
        of="the mean of the records, in units of a scale for each column that the run found",
        standard_deviation=hypot(told.standard_deviation, drawn),
        radius_95=hypot(told.radius_95, drawn),
        moved=hypot(moved, drawn),
        warnings=(
            *told.warnings,
            *scales.warnings(looks),
            *found.hidden(scales.names),
            *found.unsure(scales.names, np.ones_like(found.places.seen)),
        ),
    )
    return ColumnsMean(columns.values(image), columns.scale, columns.scale * each, told)
