"""An alarm for answers that are far better than their plan forecast: such an answer is most likely wrong."""

import numpy as np

from privest.estimators.frechet_mean.frechet_mean import FrechetMeanPlan, Mean

FAR_BETTER = 0.25
"""Part of its forecast below which an interval is far shorter than planned."""


class TooGoodError(AssertionError):
    """An answer is far better than its plan forecast, and nothing that it states explains that."""


def require_as_forecast(plan: FrechetMeanPlan, answer: Mean) -> None:
    """Refuse an answer with intervals far shorter than its plan forecast, unless it states a clip.

    The forecast is that of a noisy sum over the declared bounds. Only a column of numbers or dates that is
    clipped to a closer range can do better, and then the answer states what it assumes. Columns without
    bounds have no forecast.

    Args:
        plan: of means of a table's columns.
        answer: what a run of it returned.

    Raises:
        TooGoodError: an interval is too short to be true.
    """
    recipe, found = plan.shape.recipe, answer.uncertainty
    if recipe is None or plan.columns is None or answer.half_widths is None:
        return
    assert found is not None  # the run stated half widths
    is_clipped = bool(found.unknown) and bool(found.moved)
    may_be_clipped = np.array([is_clipped and not feature.is_share for feature in recipe.features])
    forecast = np.array([column.radius_95 for column in plan.columns])
    too_good = (answer.half_widths * recipe.half < FAR_BETTER * forecast) & ~may_be_clipped
    if too_good.any():
        at = int(np.argmax(too_good))
        half = answer.half_widths[at] * recipe.half[at]
        raise TooGoodError(
            f"{recipe.features[at].name} has an interval of ± {half:.3g}, "
            f"where the plan forecast ± {forecast[at]:.3g}: find out why before trusting it"
        )
