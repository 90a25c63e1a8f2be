"""Charts drawn on the server: numbers in, one `<svg>` out. Colours are the style sheet's, by class."""

from privest_service.dashboard.charts.boxes import Box, boxes
from privest_service.dashboard.charts.budgets import Bar, bars, gauge
from privest_service.dashboard.charts.errors import error_curve
from privest_service.dashboard.charts.heat_maps import heat_map
from privest_service.dashboard.charts.history import BurnPoint, burn_down
from privest_service.dashboard.charts.plane import ellipse, in_disk, on_circle
from privest_service.dashboard.charts.vectors import intervals, loadings, vector_bars

__all__ = [
    "Bar",
    "Box",
    "BurnPoint",
    "bars",
    "boxes",
    "burn_down",
    "ellipse",
    "error_curve",
    "gauge",
    "heat_map",
    "in_disk",
    "intervals",
    "loadings",
    "on_circle",
    "vector_bars",
]
