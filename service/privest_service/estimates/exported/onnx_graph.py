"""A classifier as an ONNX graph, which takes features or, of a table, its columns as they are."""

import json
from itertools import count, product
from typing import Any

import numpy as np

from privest.data.tables import Column
from privest_service.datasets.readers.layout import Layout
from privest_service.datasets.readers.marks import GAPS
from privest_service.estimates.exported.linear import Linear
from privest_service.problems import Invalid

_OPSET, _LEARNING, _IR = 17, 3, 9
"""Versions of ONNX, and of its operators of machine learning, that runtimes of the last years read."""


def onnx_file(linear: Linear, texts: dict[str, str]) -> bytes:
    """A graph that gives `label` and `probabilities`, in this order.

    Its input is `features`, (rows, features) doubles. Of a table each column is an input of its own, (rows,):
    texts of categories and truth values, else doubles, with NaN for a gap and the days since 1970-01-01 for a
    date. What the schema refuses has no chances: they are NaN, and the label is empty.

    Args:
        linear: the classifier.
        texts: what goes with it.

    Raises:
        Invalid: this service was installed without onnx.
    """
    try:
        import onnx  # noqa: PLC0415 - optional, and heavy
    except ImportError:
        raise Invalid("This service has no ONNX. Ask for json or pmml.") from None
    graph = _Graph(onnx, [column.name for column in linear.columns])
    make: Any = onnx.helper
    outputs = _told(graph, linear, _scores(graph, linear))
    model = make.make_model(
        make.make_graph(graph.nodes, "privest", graph.inputs, outputs, graph.constants),
        producer_name="privest",
        opset_imports=[make.make_opsetid("", _OPSET), make.make_opsetid("ai.onnx.ml", _LEARNING)],
        ir_version=_IR,
    )
    types = {"columns": json.dumps({column.name: column.type for column in linear.columns})}
    make.set_model_props(
        model, texts | {"features": json.dumps(linear.features)} | (types if linear.columns else {})
    )
    return model.SerializeToString()


class _Graph:
    """A graph in the making, in which no name is given twice: columns may be called anything."""

    def __init__(self, onnx: Any, columns: list[str]) -> None:
        self._onnx, self._taken, self._numbers = onnx, set(columns), count()
        self.nodes, self.inputs, self.constants = list[Any](), list[Any](), list[Any]()

    def _fresh(self, name: str) -> str:
        fresh = name
        while fresh in self._taken:
            fresh = f"{name}_{next(self._numbers)}"
        self._taken.add(fresh)
        return fresh

    def taken(self, name: str, *shape: str | int, text: bool = False) -> str:
        """An input of doubles or texts. Names of columns are free for it."""
        self.inputs.append(self._value(name, text, shape))
        return name

    def told(self, value: str, *shape: str | int, text: bool = False) -> Any:
        """A value as an output of doubles or texts."""
        return self._value(value, text, shape)

    def _value(self, name: str, text: bool, shape: tuple[str | int, ...]) -> Any:
        types = self._onnx.TensorProto
        return self._onnx.helper.make_tensor_value_info(name, types.STRING if text else types.DOUBLE, shape)

    def constant(self, values: Any) -> str:
        """An array of numbers or texts."""
        name = self._fresh("constant")
        self.constants.append(self._onnx.numpy_helper.from_array(np.asarray(values), name))
        return name

    def node(self, operator: str, *inputs: str, called: str | None = None, **attributes: Any) -> str:
        """The one output of an operator."""
        name = self._fresh(called or operator)
        domain = "ai.onnx.ml" if operator == "LabelEncoder" else ""
        make = self._onnx.helper.make_node
        self.nodes.append(make(operator, list(inputs), [name], domain=domain, **attributes))
        return name


def _told(graph: _Graph, linear: Linear, scores: str) -> list[Any]:
    """Labels and chances of scores."""
    chances = graph.node("Softmax", scores, called="probabilities", axis=1)
    place = graph.node("ArgMax", scores, axis=1, keepdims=0)
    likeliest = graph.node("Gather", graph.constant(np.array(linear.classes, dtype=object)), place)
    total = graph.node("ReduceSum", chances, graph.constant(np.array([1])), keepdims=0)
    empty = graph.constant(np.array([""], dtype=object))
    label = graph.node("Where", graph.node("IsNaN", total), empty, likeliest, called="label")
    return [
        graph.told(label, "rows", text=True),
        graph.told(chances, "rows", len(linear.classes)),
    ]


def _scores(graph: _Graph, linear: Linear) -> str:
    """(rows, classes) scores."""
    if linear.recipe is None:
        features = graph.taken("features", "rows", len(linear.features))
        parts = [graph.node("MatMul", features, graph.constant(linear.weights.T))]
    else:
        columns = [(place, linear.recipe.columns[place]) for place in linear.recipe.chosen]
        parts = [_of_texts(graph, linear, place) for place, column in columns if not column.is_ordered]
        parts += _of_numbers(graph, linear, [place for place, column in columns if column.is_ordered])
    return graph.node("Sum", graph.constant(linear.intercept), *parts)


def _of_texts(graph: _Graph, linear: Linear, place: int) -> str:
    """What a column of categories or truth values adds to the scores: a row of a small table.

    The table is made by the recipe itself. It has a row for each category, one of gaps and one of all else.
    """
    assert linear.recipe is not None  # noqa: S101 - of tables
    column = linear.recipe.columns[place]
    rows = np.array([*range(len(column.values)), np.nan])[:, None]
    added = linear.recipe_of(place)(rows)[:, :-1] @ linear.weights_of(place)
    nothing = np.full(added.shape[1], np.nan)
    if column.missing == "refused":
        added[-1] = nothing
    known = _read_texts(column)
    coded = graph.node(
        "LabelEncoder",
        graph.taken(column.name, "rows", text=True),
        keys_strings=list(known),
        values_int64s=list(known.values()),
        default_int64=len(added),
    )
    return graph.node("Gather", graph.constant(np.vstack([added, nothing])), coded)


def _read_texts(column: Column) -> dict[str, int]:
    """The places of texts among a column's categories, with gaps after them, as uploads are read."""
    code = Layout((1,), (column.name,), {column.name: column.values}).coder(0)
    texts = [form for value in column.values for form in (value, value.title(), value.upper(), f"{value}.0")]
    known = {text: int(code(text)) for text in (*texts, "0", "0.0", "1", "1.0")}
    gaps = {"".join(cases) for gap in GAPS for cases in product(*({s.lower(), s.upper()} for s in gap))}
    return dict.fromkeys(sorted(gaps), len(column.values)) | {
        text: level for text, level in known.items() if level >= 0
    }


def _of_numbers(graph: _Graph, linear: Linear, places: list[int]) -> list[str]:
    """What columns of numbers and dates add to the scores: by their values within bounds, and by gaps."""
    assert linear.recipe is not None  # noqa: S101 - of tables
    if not places:
        return []
    values = {f.column: f for f in linear.recipe.features if not f.is_share}
    chosen = [values[place] for place in places]
    low, high = np.array([f.ends for f in chosen]).T
    fills = np.clip([np.nan if f.fill is None else f.fill for f in chosen], low, high)
    axis = graph.constant(np.array([1]))
    names = [graph.taken(linear.recipe.columns[place].name, "rows") for place in places]
    given = graph.node("Concat", *(graph.node("Unsqueeze", name, axis) for name in names), axis=1)
    gaps = graph.node("IsNaN", given)
    within = graph.node("Max", graph.node("Min", given, graph.constant(high)), graph.constant(low))
    filled = graph.node("Where", gaps, graph.constant(fills), within)
    weights = [linear.weights_of(place) for place in places]  # of the value and, maybe, of its gaps
    parts = [
        (filled, [each[0] for each in weights]),
        (graph.node("CastLike", gaps, given), [each[1:].sum(axis=0) for each in weights]),
    ]
    return [graph.node("MatMul", part, graph.constant(np.array(each))) for part, each in parts]
