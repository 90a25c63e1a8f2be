"""A classifier as a PMML document, which takes features or, of a table, its columns as they are."""

import re
from xml.etree import ElementTree as Xml

from privest.data.tables import Column, Feature
from privest_service.estimates.exported.linear import Linear
from privest_service.problems import Invalid

_PMML = "http://www.dmg.org/PMML-4_4"

_FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that no XML document holds, not even escaped."""

_TYPES = {
    "category": ("categorical", "string"),
    "boolean": ("categorical", "boolean"),
    "date": ("ordinal", "date"),
    "integer": ("continuous", "integer"),
    "number": ("continuous", "double"),
}
"""Operational types and types of data, by types of columns."""


def pmml_file(linear: Linear, texts: dict[str, str]) -> bytes:
    """A RegressionModel with a table for each class, whose softmax are the chances.

    Of a table it takes the columns, dates as such, and derives the features.

    Args:
        linear: the classifier.
        texts: what goes with it.

    Raises:
        Invalid: a name holds what XML cannot.
    """
    root = Xml.Element("PMML", {"xmlns": _PMML, "version": "4.4"})
    header = Xml.SubElement(root, "Header")
    for name, value in texts.items():
        Xml.SubElement(header, "Extension", {"name": name, "value": value})
    inputs = linear.columns or [Column(name, "number") for name in linear.features]
    fields = Xml.SubElement(root, "DataDictionary", {"numberOfFields": str(len(inputs) + 1)})
    _field(fields, Column(linear.label, "category", categories=tuple(linear.classes)))
    for column in inputs:
        _field(fields, column)
    model = Xml.SubElement(
        root,
        "RegressionModel",
        {
            "functionName": "classification",
            "normalizationMethod": "softmax",
            "targetFieldName": linear.label,
        },
    )
    mining = Xml.SubElement(model, "MiningSchema")
    Xml.SubElement(mining, "MiningField", {"name": linear.label, "usageType": "target"})
    for column in inputs:
        Xml.SubElement(mining, "MiningField", {"name": column.name})
    _tables(model, linear, _derived(model, linear))
    written = Xml.tostring(root, encoding="utf-8", xml_declaration=True)
    if _FORBIDDEN.search(written.decode(errors="replace")):
        raise Invalid("A name holds a character that XML forbids, so pmml cannot. Ask for onnx or json.")
    return written


def _field(fields: Xml.Element, column: Column) -> None:
    kind, data = _TYPES[column.type]
    field = Xml.SubElement(fields, "DataField", {"name": column.name, "optype": kind, "dataType": data})
    for value in column.values:
        Xml.SubElement(field, "Value", {"value": value})


def _derived(model: Xml.Element, linear: Linear) -> list[str]:
    """Derive the features of a table, under names that no column has; features as they are need none."""
    if linear.recipe is None:
        return linear.features
    taken, names = {linear.label, *(column.name for column in linear.columns)}, list[str]()
    made = Xml.SubElement(model, "LocalTransformations")
    for feature in linear.recipe.features:
        name = feature.name
        while name in taken:
            name += "_"
        taken.add(name)
        names.append(name)
        field = {"name": name, "optype": "continuous", "dataType": "double"}
        image = _image(linear.recipe.columns[feature.column], feature)
        Xml.SubElement(made, "DerivedField", field).append(image)
    return names


def _image(column: Column, feature: Feature) -> Xml.Element:
    """What makes a feature of a column. Of a gap that the schema refuses nothing is made."""
    missing = _apply("isMissing", column.name)
    if feature.gap and not feature.levels:
        return _apply("if", missing, 1.0, 0.0)
    if not column.is_ordered:
        levels = feature.levels or (1,)
        of_gap = float(feature.gap or feature.fill in levels)
        gap = {} if column.missing == "refused" else {"mapMissingTo": repr(of_gap)}
        found, *others = (
            Xml.Element("NormDiscrete", {"field": column.name, "value": column.values[level]} | gap)
            for level in levels
        )
        for other in others:
            found = _apply("max", found, other)
        return found
    within = Xml.Element("FieldRef", {"field": column.name})
    if column.type == "date":
        within = _apply("dateDaysSinceYear", column.name, 1970)
    if feature.high is not None:
        within = _apply("min", feature.high, within)
    if feature.low is not None:
        within = _apply("max", feature.low, within)
    if feature.fill is None:
        return within
    low, high = feature.ends
    return _apply("if", missing, min(max(feature.fill, low), high), within)


def _apply(function: str, *parts: str | float | Xml.Element) -> Xml.Element:
    """A function of fields, which are texts, of constants, and of what other functions make."""
    made = Xml.Element("Apply", {"function": function})
    for part in parts:
        if isinstance(part, Xml.Element):
            made.append(part)
        elif isinstance(part, str):
            Xml.SubElement(made, "FieldRef", {"field": part})
        else:
            kind = "integer" if isinstance(part, int) else "double"
            Xml.SubElement(made, "Constant", {"dataType": kind}).text = repr(part)
    return made


def _tables(model: Xml.Element, linear: Linear, names: list[str]) -> None:
    """The coefficients of each class."""
    for each, intercept, weights in zip(
        linear.classes, linear.intercept.tolist(), linear.weights.tolist(), strict=True
    ):
        about = {"intercept": repr(intercept), "targetCategory": each}
        table = Xml.SubElement(model, "RegressionTable", about)
        for name, weight in zip(names, weights, strict=True):
            Xml.SubElement(table, "NumericPredictor", {"name": name, "coefficient": repr(weight)})
