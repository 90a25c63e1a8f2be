"""What is declared of a field once: its description and its bounds, for checks, forms and schemas."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Annotated, get_args, get_origin, get_type_hints


@dataclass(frozen=True)
class Doc:
    """What a field means: the metadata of an `Annotated` type.

    Attributes:
        description: in words for whoever reads an answer.
        axes: of an array, how many axes it may have; by default any number.
        omit_default: whether JSON leaves the field out where it has its default value, as it must where the
            field came later than documents that are bound to a digest.
    """

    description: str = ""
    axes: tuple[int, ...] = field(default=(), kw_only=True)
    omit_default: bool = field(default=False, kw_only=True)


@dataclass(frozen=True)
class Option(Doc):
    """What a caller may choose: as `Doc`, with the range of a number.

    Attributes:
        gt: below every value.
        ge: the least value.
        le: the largest value.
        usual: with what the dashboard's what-if form begins; give it to an option without a default. The form
            has a field for each option with a `usual`, and for no other: those go into "Further options".
    """

    gt: float | None = field(default=None, kw_only=True)
    ge: float | None = field(default=None, kw_only=True)
    le: float | None = field(default=None, kw_only=True)
    usual: int | float | str | None = field(default=None, kw_only=True)

    def check(self, name: str, value: object) -> None:
        """Refuse a number out of range; None and what is no number pass.

        Raises:
            ValueError: the option called `name` cannot have this value.
        """
        if not isinstance(value, int | float):
            return
        above = (self.gt is None or value > self.gt) and (self.ge is None or value >= self.ge)
        if not (above and (self.le is None or value <= self.le)):
            raise ValueError(f"{name} must be {self._range}")

    @property
    def _range(self) -> str:
        """In words."""
        words = (("above", self.gt), ("at least", self.ge), ("at most", self.le))
        return " and ".join(f"{word} {bound:g}" for word, bound in words if bound is not None)


def undressed(hint: object) -> tuple[object, Doc]:
    """The type in a type hint, and what is declared of it; nothing where it bears no `Doc`."""
    if get_origin(hint) is not Annotated:
        return hint, Doc()
    bare, *metadata = get_args(hint)
    return bare, next((each for each in metadata if isinstance(each, Doc)), Doc())


@cache
def declared(owner: object) -> Mapping[str, tuple[object, Doc]]:
    """The fields of a class, or the parameters of a function: their types, and what is declared of them."""
    hints = get_type_hints(owner, include_extras=True)
    return {name: undressed(hint) for name, hint in hints.items() if name != "return"}


class Options:
    """Base of dataclasses of options, which refuse numbers out of the declared range.

    Raises:
        ValueError: an option is out of range, in words fit for whoever chose it.
    """

    def __post_init__(self) -> None:
        for name, (_, doc) in declared(type(self)).items():
            if isinstance(doc, Option):
                doc.check(name, getattr(self, name))
