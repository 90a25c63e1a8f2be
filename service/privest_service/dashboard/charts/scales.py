"""Linear, logarithmic and time scales, with few ticks at values that people know."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import takewhile
from math import ceil, floor, log10

from privest_service.reports.formatting import decade

_SECONDS = (1, 5, 15, 30, 60, 300, 900, 1800, 3600, 10800, 21600, 43200, 86400, 172800)
_DAY = 86400
_WEEKS = (7, 14)
_MONTHS = (1, 3, 6, *(12 * years for years in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000)))
_MONDAY = datetime(2001, 1, 1, tzinfo=UTC)


def _position(value: float, low: float, high: float, start: float, stop: float) -> float:
    """Where `value` lies between `start` and `stop`; halves, so that no span overflows."""
    span = high / 2 - low / 2
    return start + (stop - start) * ((value / 2 - low / 2) / span if span > 0 else 0.5)


@dataclass(frozen=True)
class Linear:
    """Maps [low, high] to [start, stop]; all to the middle if low = high."""

    low: float
    high: float
    start: float
    stop: float

    def __call__(self, value: float) -> float:
        """The coordinate of `value`."""
        return _position(value, self.low, self.high, self.start, self.stop)

    def ticks(self, most: int = 5) -> list[float]:
        """Return at most this many multiples of 1, 2, 2.5 or 5 times a power of ten, ascending."""
        span = self.high / most - self.low / most
        if span <= max(1e-300, 1e-14 * max(abs(self.low), abs(self.high))):  # finer steps float has not
            return [self.low]
        power = decade(span)
        for mantissa in (1.0, 2.0, 2.5, 5.0, 10.0):
            step = float(f"{mantissa}e{power}")
            first, last = ceil(self.low / step - 1e-9), floor(self.high / step + 1e-9)
            if last - first < most:
                break
        # Dividing by a power of ten gives 0.3 where multiplying gives 0.30000000000000004.
        unit = 10.0**-power if -300 < power < 0 else 0.0
        ticks = [i * mantissa / unit if unit else i * step for i in range(first, last + 1)]
        return list(dict.fromkeys(ticks))


@dataclass(frozen=True)
class Log:
    """Maps the logarithm of [low, high], both positive, to [start, stop]; keeps to the ends outside."""

    low: float
    high: float
    start: float
    stop: float

    def __call__(self, value: float) -> float:
        """The coordinate of `value`."""
        kept = min(max(value, self.low), self.high)
        return _position(log10(kept), log10(self.low), log10(self.high), self.start, self.stop)

    def ticks(self, most: int = 5) -> list[float]:
        """Return at most this many values: 1, 2 and 5 of each decade, or powers of ten.

        A narrow range has linear ones.
        """
        first, last = decade(self.low), decade(self.high)
        fine = [float(f"{mantissa}e{power}") for power in range(first, last + 1) for mantissa in (1, 2, 5)]
        inside = [tick for tick in fine if self.low <= tick <= self.high]
        if len(inside) < 3:
            return Linear(self.low, self.high, self.start, self.stop).ticks(min(most, 5))
        if len(inside) <= most:
            return inside
        powers = range(ceil(log10(self.low)), floor(log10(self.high)) + 1)
        return [float(f"1e{power}") for power in powers[:: ceil(len(powers) / most) or 1]]


@dataclass(frozen=True)
class Time:
    """Maps [low, high] to [start, stop]; all in UTC."""

    low: datetime
    high: datetime
    start: float
    stop: float

    def __call__(self, at: datetime) -> float:
        """The coordinate of `at`."""
        return _position(at.timestamp(), self.low.timestamp(), self.high.timestamp(), self.start, self.stop)

    def ticks(self, most: int = 5) -> list[tuple[datetime, str]]:
        """Return at most this many round moments with labels: times of day, days, Mondays, months, years."""
        low, high = self.low.astimezone(UTC), self.high.astimezone(UTC)
        seconds = (high - low).total_seconds()
        for step in (*_SECONDS, *(_DAY * days for days in _WEEKS)):
            if seconds / step < most:
                first = _MONDAY + ceil((low - _MONDAY) / timedelta(seconds=step)) * timedelta(seconds=step)
                times = [first + i * timedelta(seconds=step) for i in range(most)]
                return [(at, _clock(at, step)) for at in takewhile(lambda at: at <= high, times)]
        months = seconds / (28 * _DAY)
        step = next(step for step in _MONTHS if months / step < most)
        before = low - timedelta(microseconds=1)
        first = (before.year * 12 + before.month) // step * step
        first += step * (first < before.year * 12 + before.month)
        starts = [
            datetime(i // 12, i % 12 + 1, 1, tzinfo=UTC) for i in range(first, first + most * step, step)
        ]
        return [(at, f"{at:%b}" if at.month > 1 else str(at.year)) for at in starts if at <= high]

    def caption(self) -> str:
        """What the ticks leave unsaid: the day, or the year, and the time zone."""
        low, high = self.low.astimezone(UTC), self.high.astimezone(UTC)
        if (high - low).total_seconds() < 5 * 43200:
            return f"{low.day} {low:%b %Y}, UTC"
        return f"{low.year}, UTC" if low.year == high.year else f"{low.year} to {high.year}, UTC"


def _clock(at: datetime, step: int) -> str:
    if step < 60:
        return f"{at:%H:%M:%S}"
    return f"{at.day} {at:%b}" if step >= _DAY or at.hour == at.minute == 0 else f"{at:%H:%M}"
