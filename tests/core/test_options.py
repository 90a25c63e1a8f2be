"""What is declared of options is read and checked from their declaration alone."""

from dataclasses import dataclass
from math import nan
from typing import Annotated

import pytest

from privest import manifolds
from privest.estimators.registry import ESTIMATORS
from privest.options import Doc, Option, Options, declared


@dataclass(frozen=True)
class Choices(Options):
    """Options with a few fields."""

    count: Annotated[int, Option("how many", ge=1, le=9)]
    share: Annotated[float | None, Option("how much", gt=0, le=1)] = None
    name: Annotated[str, Option("any")] = "x"
    plain: float = -1.0


@pytest.mark.parametrize(
    ("given", "rule"),
    [
        ({"count": 0}, "count must be at least 1 and at most 9"),
        ({"count": 10}, "count must be at least 1 and at most 9"),
        ({"count": 1, "share": 0.0}, "share must be above 0 and at most 1"),
        ({"count": 1, "share": 1.5}, "share must be above 0 and at most 1"),
        ({"count": 1, "share": nan}, "share must be above 0 and at most 1"),
    ],
)
def test_what_is_out_of_range_is_refused_in_words(given, rule):
    with pytest.raises(ValueError, match=f"^{rule}$"):
        Choices(**given)


def test_what_is_in_range_or_no_number_passes():
    assert Choices(1).share is None
    assert Choices(9, 1.0, "y", -5.0) == Choices(count=9, share=1.0, name="y", plain=-5.0)


def test_fields_are_read_with_their_types():
    assert declared(Choices)["count"] == (int, Option("how many", ge=1, le=9))
    assert declared(Choices)["plain"] == (float, Doc())


@pytest.mark.parametrize("name", ESTIMATORS)
def test_every_option_of_every_estimator_is_described(name):
    options = {option: doc for option, (_, doc) in declared(ESTIMATORS[name].spec).items()}
    assert [
        option for option, doc in options.items() if not (isinstance(doc, Option) and doc.description)
    ] == []


@pytest.mark.parametrize("name", manifolds.MANIFOLDS)
def test_every_parameter_of_every_manifold_is_described_and_bounded(name):
    for _, doc in manifolds.parameters(name).values():
        assert isinstance(doc, Option)
        assert doc.description
    too_large = {"dim": 10**6} | ({"rank": 1} if "rank" in manifolds.parameters(name) else {})
    with pytest.raises(ValueError, match=f"dim of {name} must be at least"):
        manifolds.get(name, **too_large)
