"""PMML of names that XML cannot hold."""

import numpy as np
import pytest

from privest_service.estimates.exported.linear import Linear
from privest_service.estimates.exported.pmml_document import pmml_file
from privest_service.problems import Invalid


@pytest.mark.parametrize(
    ("name", "is_refused"), [("a\ufffe", True), ("b\uffff", True), ("𝒳 <&> ü\x85", False)]
)
def test_a_name_that_xml_forbids_is_refused_in_words(name: str, is_refused: bool) -> None:
    linear = Linear([name], "label", ["no", "yes"], np.zeros((2, 1)), np.zeros(2), None)
    if not is_refused:
        assert pmml_file(linear, {}).startswith(b"<?xml")
        return
    with pytest.raises(Invalid) as refused:
        pmml_file(linear, {})
    assert "XML forbids" in (refused.value.detail or "")
