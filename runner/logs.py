"""Logging that can neither stop a restore nor tell a secret. Knows no run; only it sets up structlog.

structlog's own loggers raise on a full disk, a closed pipe and a field with a bad repr; a line
that cannot be written here is counted and forgotten. httpx logs whole URLs at INFO, and Telegram's
hold the token, so it speaks from WARNING on.
"""

import logging
import os
import sys
from collections.abc import Iterable
from datetime import UTC, datetime, tzinfo
from typing import cast

import structlog
from structlog.typing import EventDict, WrappedLogger

from runner import secrets, words

_TALKATIVE = ("httpx", "httpcore", "telegram", "asyncio")
_RESERVED = frozenset({"event", "method_name"})
_PLAIN = (str, int, float, bool, type(None))
_lost_so_far = 0


def lost() -> int:
    """How many log lines could not be written since the start; a run's result says it."""
    return _lost_so_far


def _lose() -> None:
    global _lost_so_far  # noqa: PLW0603 - one counter for the process is what is asked for
    _lost_so_far += 1


class Log(structlog.BoundLoggerBase):
    """A logger whose methods never raise: `log.info("what happened", key=value)`."""

    def debug(self, event: str, /, **fields: object) -> None:
        """For whoever looks for a fault in the runner."""
        self._say("debug", event, fields)

    def info(self, event: str, /, **fields: object) -> None:
        """A step of the story."""
        self._say("info", event, fields)

    def warning(self, event: str, /, **fields: object) -> None:
        """Not as wished for, and dealt with."""
        self._say("warning", event, fields)

    def error(self, event: str, /, **fields: object) -> None:
        """Somebody will have to look at this."""
        self._say("error", event, fields)

    def exception(self, event: str, /, **fields: object) -> None:
        """An error, with the traceback of the exception being handled (never its locals)."""
        self._say("error", event, {"exc_info": True, **fields})

    def _say(self, level: str, event: str, fields: dict[str, object]) -> None:
        try:
            safe = {
                f"{name}_" if name in _RESERVED else name: value
                if name == "exc_info" or isinstance(value, _PLAIN)
                else _text(value)
                for name, value in fields.items()
            }
            self._proxy_to_logger(level, _text(event), **safe)
        except Exception:  # noqa: BLE001 - whatever a log line stumbles over must not end a restore
            _lose()


class _ToStderr(logging.Handler):
    """Writes lines to standard error at once: no buffer that could fail at the exit."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write the record as one redacted line, or lose it."""
        try:
            line = secrets.redact(self.format(record)) + "\n"
            os.write(sys.stderr.fileno(), line.encode("utf-8", "backslashreplace"))
        except Exception:  # noqa: BLE001 - as in Log._say
            _lose()


def configure(
    *, level: str = "warning", zone: tzinfo | None = None, keep: Iterable[str] = ()
) -> None:
    """Send log lines of `level` and worse to standard error; `keep` are secrets to hide by value."""
    secrets.keep(keep)
    root = logging.getLogger()
    for before in [each for each in root.handlers if isinstance(each, _ToStderr)]:
        root.removeHandler(before)
    handler = _ToStderr()
    handler.setFormatter(_formatter(zone))
    root.addHandler(handler)
    root.setLevel(level.upper())
    logging.captureWarnings(capture=True)
    for name in _TALKATIVE:
        logging.getLogger(name).setLevel(logging.WARNING)
    _set_up()


def get(name: str) -> Log:
    """The logger of a module."""
    if not structlog.is_configured():
        _set_up()
    return cast("Log", structlog.stdlib.get_logger(name))


def _set_up() -> None:
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        wrapper_class=Log,
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=False,
    )


def _formatter(zone: tzinfo | None) -> structlog.stdlib.ProcessorFormatter:
    def line(_: WrappedLogger, level: str, event: EventDict) -> str:
        record = event.pop("_record")
        event.pop("_from_structlog", None)
        at = words.iso(datetime.fromtimestamp(record.created, UTC), zone)
        said = _text(event.pop("event", ""))
        trace = event.pop("exception", None)
        fields = "".join(f" {name}={_text(value, quoted=True)}" for name, value in event.items())
        whole = f"{at} {level:<7} {record.name}: {said}{fields}"
        return f"{whole}\n{words.shown(trace, lines=True)}" if trace else whole

    return structlog.stdlib.ProcessorFormatter(
        processors=[structlog.processors.format_exc_info, line], keep_exc_info=True
    )


def _text(value: object, *, quoted: bool = False) -> str:
    """A value as it stands in a log line; a value that cannot say what it is does not lose it."""
    try:
        text = words.shown(value)
    except Exception:  # noqa: BLE001 - other people's __str__
        return f"<{type(value).__name__} that cannot be shown>"
    return f'"{text}"' if quoted and (" " in text or not text) else text
