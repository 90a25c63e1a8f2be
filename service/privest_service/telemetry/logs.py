"""Logs: JSON lines on standard error, of this service and of the libraries that it stands on.

Messages of exceptions, of warnings and of libraries may quote whatever went wrong: a row, a key, the
parameters of a statement. Told is what kind of thing it was, and where in the code.
"""

import errno
import logging
import sys
import threading
import warnings
from contextlib import suppress
from traceback import extract_tb
from types import FrameType, TracebackType
from typing import Any, TextIO

import structlog
from structlog.typing import EventDict

log = structlog.get_logger()

_FRAMES = 12
"""Innermost frames of a traceback that are logged."""


def configure() -> None:
    """Have all that this process says of itself, whichever way, become such lines."""
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="%Y-%m-%dT%H:%M:%SZ", utc=True),
            _without_messages,
            structlog.processors.JSONRenderer(),
        ],
        logger_factory=structlog.WriteLoggerFactory(_Losing(sys.stderr)),  # pyright: ignore[reportArgumentType]
        cache_logger_on_first_use=True,
    )
    logging.basicConfig(handlers=[_OfLibraries(logging.INFO)], level=logging.WARNING, force=True)
    warnings.showwarning = _warned
    threading.excepthook = _thread_failed
    sys.unraisablehook = _went_unheard
    sys.excepthook = _process_failed


class _Losing:
    """A stream whose lines are lost where they cannot be written: no request fails for want of its line."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> None:
        """Write, and ignore a stream that fails."""
        with suppress(OSError):
            self._stream.write(text)

    def flush(self) -> None:
        """Flush, and ignore a stream that fails."""
        with suppress(OSError):
            self._stream.flush()


def _without_messages(_: object, __: str, event: EventDict) -> EventDict:
    """Tell what may be told of the exception in `exc_info`, or of the one being handled."""
    if given := event.pop("exc_info", None):
        error = given if isinstance(given, BaseException) else sys.exception()
        if error is not None:
            kind = f"{type(error).__module__}.{type(error).__qualname__}".removeprefix("builtins.")
            event["error"], event["where"] = kind, _where(error.__traceback__)
            if code := _code(error):
                event["code"] = code
    return event


def _where(traceback: TracebackType | None) -> list[str]:
    return [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in extract_tb(traceback)[-_FRAMES:]]


def _code(error: BaseException | None) -> str | None:
    """Return the error code of PostgreSQL, SQLite or the system.

    It comes from the error or from what caused it, and is one of a fixed list.
    """
    while error is not None:
        for name in ("sqlstate", "sqlite_errorname"):
            if code := getattr(error, name, None):
                return code
        if isinstance(error, OSError) and error.errno:
            return errno.errorcode.get(error.errno)
        error = error.__cause__ or error.__context__
    return None


_LEVELS = (logging.INFO, logging.WARNING, logging.ERROR)


class _OfLibraries(logging.Handler):
    """Tells a library's message only if its code holds it word for word, before any value is put in."""

    def emit(self, record: logging.LogRecord) -> None:
        """Log what a library logged."""
        error = record.exc_info[1] if record.exc_info else record.msg
        log.log(
            max(known for known in _LEVELS if known <= record.levelno),
            record.msg.strip() if _is_literal(record) else "(not told)",
            logger=record.name,
            at=f"{record.pathname}:{record.lineno}",
            exc_info=error if isinstance(error, BaseException) else None,
        )


def _is_literal(record: logging.LogRecord) -> bool:
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        if (frame.f_code.co_filename, frame.f_lineno) == (record.pathname, record.lineno):
            return isinstance(record.msg, str) and record.msg in frame.f_code.co_consts
        frame = frame.f_back
    return False


def _warned(_: object, category: type[Warning], filename: str, lineno: int, *__: object) -> None:
    log.warning("a warning", kind=category.__name__, at=f"{filename}:{lineno}")


def _thread_failed(thrown: threading.ExceptHookArgs) -> None:
    log.error("a thread failed", exc_info=thrown.exc_value)


def _went_unheard(thrown: Any) -> None:
    log.error("an exception went unheard", exc_info=thrown.exc_value)


def _process_failed(_: object, error: BaseException, __: object) -> None:
    log.error("the process failed", exc_info=error)
