"""Points at which an adversary would have a statistic summed: those of the audit's cases, of any floats."""

from dataclasses import fields, is_dataclass
from typing import Any, cast

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from privest.estimators.linear_model.feature_map import FeatureMap
from privest.estimators.subspace.candidates import Candidates
from privest.estimators.subspace.losses import SubspaceQuery
from privest_papers.nonconvex_losses import Leaf, LinearQuery
from testing.hostile_rows import EXTREMES

_OF_THE_PLAN: dict[type, set[str]] = {
    FeatureMap: {"bound", "constant", "usual"},
    Candidates: {"scale"},
    SubspaceQuery: {"loss"},
    LinearQuery: {"loss"},
    Leaf: {"records"},
}
"""Fields of points that a plan fixes; released numbers decide the others."""

floats = st.one_of(
    st.sampled_from([*EXTREMES, *(-value for value in EXTREMES)]), st.floats(width=64), st.floats(-2.0, 2.0)
)
"""Any float64, those that overflow, vanish or are no numbers more often than others."""


@st.composite
def hostile_points(draw: st.DrawFn, point: Any) -> Any:
    """Points of the structure of this one, in which some parts have any floats in place of their own."""
    if isinstance(point, np.ndarray):
        return draw(st.one_of(st.just(point), arrays(np.float64, point.shape, elements=floats)))
    if isinstance(point, float):
        return draw(st.one_of(st.just(point), floats))
    if isinstance(point, tuple | list):
        parts = [draw(hostile_points(part)) for part in cast("list[Any]", point)]
        return parts if isinstance(point, list) else tuple(parts)
    if is_dataclass(point) and not isinstance(point, type):
        fixed = _OF_THE_PLAN.get(type(point), set[str]())
        given = {each.name: getattr(point, each.name) for each in fields(point)}
        return type(point)(
            **{name: part if name in fixed else draw(hostile_points(part)) for name, part in given.items()}
        )
    return point
