"""openapi.yaml as a page: every call, and everything that is sent and answered."""

import json
from collections.abc import Iterator
from itertools import groupby
from typing import Any

import yaml

Schema = dict[str, Any]

_BOUNDS = {
    "minimum": "≥ {}",
    "exclusiveMinimum": "> {}",
    "maximum": "≤ {}",
    "exclusiveMaximum": "< {}",
    "minLength": "{} characters or more",
    "maxLength": "{} characters or fewer",
    "minItems": "{} or more",
    "maxItems": "{} or fewer",
}


def page(source: str) -> str:
    """The page.

    Args:
        source: openapi.yaml.
    """
    api = yaml.load(source, yaml.CSafeLoader)  # in C: the other takes seconds
    calls = [
        (call["tags"][0], method.upper(), path, call)
        for path, methods in api["paths"].items()
        for method, call in methods.items()
    ]
    parts = ["# The HTTP interface", api["info"]["description"]]
    parts.append("`Authorization: Bearer …` goes with every call but those under operations. Refusals are a")
    parts[-1] += (
        f" {_link('ProblemDocument')}, whose `type` ends in one of the words that stand with its status."
    )
    for tag, group in groupby(calls, key=lambda call: call[0]):
        parts.append(f"## {tag.capitalize()}")
        for _, method, path, call in group:
            parts += _call(method, path, call)
    parts.append("## What is sent and answered")
    for name, schema in sorted(api["components"]["schemas"].items()):
        parts += _object(name, schema)
    return "\n\n".join(parts) + "\n"


def _call(method: str, path: str, call: Schema) -> Iterator[str]:
    yield f"### {method} {path} {{ #{call['operationId']} }}"
    yield call.get("description", "")
    if "parameters" in call:
        rows = [
            (f"`{each['name']}`", each["in"], _type(each["schema"]), each.get("description", ""))
            for each in call["parameters"]
        ]
        yield _table(("parameter", "in", "type", "meaning"), rows)
    for media, body in call.get("requestBody", {}).get("content", {}).items():
        yield f"Sent as `{media}`: {_type(body['schema'])}"
    rows = []
    for status, answer in sorted(call["responses"].items()):
        content = [
            _type(body["schema"]) if body.get("schema") else f"`{media}`"
            for media, body in answer.get("content", {}).items()
        ]
        said = answer["description"]
        rows.append((status, " or ".join(content), "" if said == "Successful Response" else said))
    yield _table(("status", "answer", ""), rows)


def _object(name: str, schema: Schema) -> Iterator[str]:
    yield f"### {name} {{ #{_anchor(name)} }}"
    yield schema.get("description", "")
    if "oneOf" in schema:
        yield f"{_type(schema)}, as `{schema['discriminator']['propertyName']}` says."
        return
    required = schema.get("required", ())
    rows = [
        (
            f"`{field}`" + (" *" if field in required else ""),
            _type(each),
            f"`{json.dumps(each['default'], ensure_ascii=False)}`" if "default" in each else "",
            each.get("description", ""),
        )
        for field, each in schema["properties"].items()
    ]
    yield _table(("field (* always there)", "type", "if left out", "meaning"), rows)


def _type(schema: Schema) -> str:
    """What a value may be, in words, with links to what it is made of."""
    if "$ref" in schema:
        return _link(schema["$ref"].rpartition("/")[2])
    if "const" in schema or "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema.get("enum", [schema.get("const")]))
    for several in ("anyOf", "oneOf"):
        if several in schema:
            return " or ".join(_type(each) for each in schema[several])
    kind = schema.get("type", "anything")
    if kind == "array":
        kind = f"list of {_type(schema.get('items') or {})}"
    elif kind == "object" and isinstance(schema.get("additionalProperties"), dict):
        kind = f"object of {_type(schema['additionalProperties'])}"
    bounds = [said.format(f"{schema[name]:g}") for name, said in _BOUNDS.items() if name in schema]
    return ", ".join([kind, *bounds])


def _link(name: str) -> str:
    return f"[{name}](#{_anchor(name)})"


def _anchor(name: str) -> str:
    return f"schema-{name.lower()}"


def _table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    return "\n".join(f"| {' | '.join(map(_cell, line))} |" for line in lines)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
