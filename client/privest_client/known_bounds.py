"""Public bounds that the name of a column suggests, such as 0 to 110 for `age`."""

import re
from collections.abc import Mapping
from typing import Any

Bounds = tuple[float, float]

_BOUNDS: Mapping[Bounds, str] = {
    (0, 110): "age age_years age_in_years years_old",
    (1900, 2100): "year birth_year year_of_birth",
    (1, 12): "month month_of_year",
    (1, 53): "week week_of_year calendar_week",
    (1, 31): "day_of_month",
    (1, 366): "day_of_year",
    (0, 7): "day_of_week weekday days_per_week",
    (0, 24): "hour hour_of_day hours_per_day hours_of_sleep",
    (0, 168): "hours_per_week hours_week weekly_hours work_hours_per_week",
    (0, 60): "minute minute_of_hour",
    (0, 100): "percent percentage pct",
    (0, 1): "share fraction proportion probability",
    (40, 250): "height_cm body_height_cm stature_cm",
    (0.4, 2.5): "height_m body_height_m",
    (0.3, 400): "weight_kg body_weight_kg body_mass_kg",
    (30, 250): "waist_cm waist_circumference_cm hip_cm hip_circumference_cm",
    (8, 80): "bmi body_mass_index",
    (50, 300): "systolic sbp systolic_bp systolic_blood_pressure",
    (20, 200): "diastolic dbp diastolic_bp diastolic_blood_pressure",
    (20, 250): "heart_rate heart_rate_bpm pulse pulse_rate",
    (30, 45): "body_temperature_c body_temp_c",
    (-90, 60): "temperature_c temp_c air_temperature_c",
    (-90, 90): "latitude lat",
    (-180, 180): "longitude lon lng",
}
"""Names by bounds that hold for nearly everything that is called so."""

_BY_NAME = {name: bounds for bounds, names in _BOUNDS.items() for name in names.split()}


def bounds_by_name(name: str) -> Bounds | None:
    """Return bounds for a well-known name, in any case and with any separators, or None for other names."""
    words = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name.replace("%", " percent "))
    return _BY_NAME.get("_".join(re.findall(r"[a-z0-9]+", words.lower())))


def offered(column: Mapping[str, Any]) -> dict[str, float]:
    """Return `low` and `high` for a column by its name alone; empty where its owner declared one of them.

    Only numbers have them, and only where a declared fill lies within.

    Args:
        column: as declared.
    """
    bounds = bounds_by_name(column["name"])
    if bounds is None or {"low", "high"} & column.keys() or column.get("type") not in ("number", "integer"):
        return {}
    low, high = bounds
    fill = column.get("fill")
    if fill is not None and not (isinstance(fill, int | float) and low <= fill <= high):
        return {}
    return {"low": low, "high": high}
