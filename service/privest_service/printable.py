"""Texts that are shown as they are: on pages, in files and in terminals."""

from unicodedata import category


def is_printable(text: str) -> bool:
    """Return whether a text has no controls, nothing invisible and nothing that turns its direction around.

    Spaces of any width are allowed, as they are copied from sheets.
    """
    return all(each.isprintable() or category(each) == "Zs" for each in text)


def escaped(text: str) -> str:
    """Return a text of one line for a terminal, with an escape in place of each unprintable character."""
    return "".join(each if is_printable(each) else f"\\u{ord(each):04x}" for each in text)
