"""`Doc` and `Option`: the one declaration of a field's meaning and bounds, for checks, forms and schemas."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Annotated, Any, Self, cast, get_args, get_origin, get_type_hints


@dataclass(frozen=True)
class Doc:
    """The meaning of a field, as metadata of its `Annotated` type.

    Attributes:
        description: the meaning, in words for readers of an answer.
        axes: the numbers of axes that an array may have; any number by default.
        omit_default: whether JSON omits the field if it has its default value. A field added later than
            stored documents needs this, so that their digests stay valid.
    """

    description: str = ""
    axes: tuple[int, ...] = field(default=(), kw_only=True)
    omit_default: bool = field(default=False, kw_only=True)


@dataclass(frozen=True)
class Option(Doc):
    """A field that a caller may choose: a `Doc` with the range of a number.

    Attributes:
        gt: number that every value exceeds.
        ge: least value.
        le: largest value.
        usual: initial value in the dashboard's what-if form, for options without a default. Only options
            with a `usual` have a field of their own there; the others go into "Further options".
    """

    gt: float | None = field(default=None, kw_only=True)
    ge: float | None = field(default=None, kw_only=True)
    le: float | None = field(default=None, kw_only=True)
    usual: int | float | str | None = field(default=None, kw_only=True)

    def check(self, name: str, value: object) -> None:
        """Refuse a number out of range. Values that are not numbers, such as None, pass.

        Raises:
            ValueError: the value is out of range; the message calls it `name`.
        """
        if not isinstance(value, int | float):
            return
        above = (self.gt is None or value > self.gt) and (self.ge is None or value >= self.ge)
        if not (above and (self.le is None or value <= self.le)):
            raise ValueError(f"{name} must be {self._range}")

    @property
    def _range(self) -> str:
        """The range in words, such as "above 0 and at most 1"."""
        words = (("above", self.gt), ("at least", self.ge), ("at most", self.le))
        return " and ".join(f"{word} {bound:g}" for word, bound in words if bound is not None)


def undressed(hint: object) -> tuple[object, Doc]:
    """The plain type in a type hint, and its `Doc`, which is empty if the hint has none."""
    if get_origin(hint) is not Annotated:
        return hint, Doc()
    bare, *metadata = get_args(hint)
    return bare, next((each for each in metadata if isinstance(each, Doc)), Doc())


@cache
def declared(owner: object) -> Mapping[str, tuple[object, Doc]]:
    """The fields of a class, or the parameters of a function: the type and the `Doc` of each, by name."""
    hints = get_type_hints(owner, include_extras=True)
    return {name: undressed(hint) for name, hint in hints.items() if name != "return"}


class Options:
    """Base of dataclasses whose fields are options. They refuse numbers out of the declared range.

    An option may itself be a list of options.

    Raises:
        ValueError: an option is out of range. The message is fit for the analyst who chose it.
    """

    def __post_init__(self) -> None:
        for name, (_, doc) in declared(type(self)).items():
            if isinstance(doc, Option):
                doc.check(name, getattr(self, name))

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Self:
        """The options of a JSON object; those that hold other options, or names, are lists there."""
        types = declared(cls)
        return cls(**{name: _read(types[name][0], value) for name, value in given.items() if name in types})


def _read(hint: object, value: Any) -> Any:
    """The value of an option in JSON as its type has it."""
    found = [part for part in (hint, *get_args(hint)) if get_origin(part) is tuple]
    if not (found and isinstance(value, list)):
        return value
    (each, *_) = get_args(found[0])
    return tuple(_made(each, part) for part in cast("list[Any]", value))


def _made(kind: Any, given: Any) -> Any:
    return kind.of(given) if isinstance(kind, type) and issubclass(kind, Options) else given
