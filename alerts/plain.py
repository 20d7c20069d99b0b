"""Telling with the standard library only: the last resort, and what recovery uses.

It must work when every installed package is broken. Knows no run and no config file: a channel is
the plain JSON that `recovery.json` carries, and secrets are named there, never written.
"""

import contextlib
import http.client
import json
import os
import queue
import re
import ssl
import stat
import threading
import urllib.parse
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from alerts.message import Alert, DeliveryError, clean, clip, scrub
from alerts.program import hand_over

Spec = Mapping[str, Any]
Tell = Callable[["str | DeliveryError"], None]

TELEGRAM: Final = "https://api.telegram.org"
PLACEHOLDER: Final = "none"  # what the unit files set for a credential whose file is missing
_KINDS = ("telegram", "file", "command")
_FOR_EVER = 1e9  # seconds; nobody asks for so many, and a number of 400 digits is no float
_MOST = 64 * 1024  # bytes read of an answer; a real one has under 8 KiB


class PlainChannel:
    """A channel as recovery knows it, made from a spec; delivers like a configured one."""

    def __init__(self, spec: Spec) -> None:
        self.kind: str = spec["kind"]
        self.on: tuple[str, ...] | None = tuple(spec["on"]) if spec.get("on") else None
        self.far: bool = self.kind != "file"
        self._spec = spec

    def deliver(self, alert: Alert, *, within: float) -> str:
        """Send it; returns what is known of the delivery, raises DeliveryError."""
        return deliver(self._spec, alert.whole, within, alert)


def channels(specs: Iterable[Spec]) -> list[PlainChannel]:
    """The channels of `recovery.json`; kinds that this version does not know are left out."""
    return [PlainChannel(spec) for spec in specs if spec.get("kind") in _KINDS]


def deliver(spec: Spec, text: str, timeout: float = 20.0, alert: Alert | None = None) -> str:
    """Deliver one text to one channel within `timeout` seconds, names and TLS included.

    `{"kind": "telegram", "token": {"file" | "credential" | "env"}, "chat_id", "message_thread_id"?,
    "api_base"?, "proxy"?}`, `{"kind": "file", "path", "format"?}` or `{"kind": "command",
    "command"}`. Returns what is known of the delivery ("message 17"); raises DeliveryError.
    """
    text = clip(clean(text))
    match spec.get("kind"):
        case "file":
            entry = file_entry(spec.get("format", "text"), text, alert)
            return within(timeout, lambda tell: tell(append(spec["path"], entry)))
        case "command":
            told = alert or Alert(key="", first_line=text)
            return within(timeout + 2, lambda tell: tell(hand_over(spec["command"], told, timeout)))
        case "telegram":
            telegram = _Telegram(spec, timeout)
            return within(timeout, lambda tell: tell(telegram.message(text)), telegram.given_up)
        case other:
            raise DeliveryError(f"no such kind of channel: {other}", permanent=True)


def within(
    seconds: float, act: Callable[[Tell], None], given_up: Callable[[], DeliveryError] | None = None
) -> str:
    """Run `act` until it tells its result or the time is over; raises DeliveryError.

    A thread that can be left behind, because nothing else bounds a name look-up or a dead mount.
    The error is raised here, as a fresh one: the frames of the thread hold tokens, and a
    traceback would show them.
    """
    told: queue.SimpleQueue[str | DeliveryError] = queue.SimpleQueue()

    def acting() -> None:
        try:
            act(told.put)
        except DeliveryError as error:
            told.put(error)
        except Exception as error:  # noqa: BLE001 - the error of any library becomes a failed delivery
            told.put(DeliveryError(scrub(f"{type(error).__name__}: {error}")))

    threading.Thread(target=acting, daemon=True, name="alert").start()
    result: str | DeliveryError
    try:
        result = told.get(timeout=seconds)
    except queue.Empty:
        over = DeliveryError(f"no answer within {seconds:g} s", uncertain=True)
        result = given_up() if given_up else over
    if isinstance(result, str):
        return result
    raise _bare(result)


def read_secret(ref: Mapping[str, str]) -> str:
    """The secret that `{"file": …}`, `{"credential": …}` or `{"env": …}` names.

    Raises DeliveryError, permanent, that says where it was looked for and never what was found.
    """
    if path := ref.get("file"):
        return _secret_file(Path(path), str(path))
    if name := ref.get("credential"):
        folder = os.environ.get("CREDENTIALS_DIRECTORY")
        if not folder:
            message = (
                f"credential {name}: $CREDENTIALS_DIRECTORY is not set (not started by systemd)"
            )
            raise DeliveryError(message, permanent=True)
        return _secret_file(Path(folder) / name, f"credential {name}")
    name = ref.get("env", "")
    if value := os.environ.get(name, "").strip():
        return value
    raise DeliveryError(f"environment variable {name}: not set or empty", permanent=True)


def file_entry(form: str, text: str, alert: Alert | None) -> str:
    """What is appended for one alert: a JSON line, or a block of text between empty lines."""
    at = (alert.at if alert else "") or datetime.now(UTC).isoformat(timespec="seconds")
    if form == "json":
        known = {"key": alert.key, "kind": alert.kind} if alert else {}
        return json.dumps({"at": at, **known, "text": text}, ensure_ascii=False) + "\n"
    return f"{at}\n{text}\n\n"


def refusal(status: int, said: str, parameters: Mapping[str, Any]) -> DeliveryError:
    """What an answer of the Bot API that is no success means for the next try.

    401 and 404 both read "bad token", and a gateway answers 404 as well, so they are tried again.
    Causes that only a person can mend: https://core.telegram.org/bots/api#making-requests
    """
    said = f"{status}: {said}" if said else f"{status}"
    if isinstance(wait := parameters.get("retry_after"), int | float) and abs(wait) < _FOR_EVER:
        return DeliveryError(f"Telegram asks to wait {wait:g} s", retry_after=float(wait))
    if status in {401, 404}:
        return DeliveryError(f"token refused ({said}); is it the right one, and api_base too?")
    if status == 403:
        return DeliveryError(f"the bot may not write to this chat ({said})", permanent=True)
    if status == 400:
        return DeliveryError(f"Telegram does not take this message ({said})", permanent=True)
    return DeliveryError(f"Telegram has a fault ({said})")


def moved(chat_id: int) -> str:
    """What a message says when its group got a new id, so that a person mends the config."""
    return f"(this group is now chat_id = {chat_id}: please put that into runner.toml)"


NOT_THE_API: Final = (
    "the answer is not from the Bot API; is a login page or a proxy in between, or api_base wrong?"
)


class _Telegram:
    """One message by http.client; remembers how far it came, for when the time is over."""

    def __init__(self, spec: Spec, timeout: float) -> None:
        self._spec = spec
        self._token = ""
        self._timeout = timeout
        self._connection: http.client.HTTPConnection | None = None
        self._sending = False

    def message(self, text: str) -> str:
        """Send the text, to the group's new id where it moved; returns the message's number."""
        self._token = read_secret(self._spec["token"])
        body: dict[str, Any] = {
            "chat_id": self._spec["chat_id"],
            "text": text,
            "link_preview_options": {"is_disabled": True},  # a file name can look like a site
        }
        if (thread := self._spec.get("message_thread_id")) is not None:
            body["message_thread_id"] = thread
        status, answer = self._post(body)
        parameters = answer.get("parameters") or {}
        if isinstance(chat := parameters.get("migrate_to_chat_id"), int):
            body |= {"chat_id": chat, "text": f"{text}\n{moved(chat)}"}
            status, answer = self._post(body)
        if status == 200 and answer.get("ok") is True:
            number = (answer.get("result") or {}).get("message_id")
            if isinstance(number, int):
                return f"message {number}"
        if answer.get("ok") is not False:
            raise DeliveryError(f"HTTP {status}: {NOT_THE_API}")
        said = clip(scrub(str(answer.get("description", "")), self._token), 200)
        raise refusal(status, said, answer.get("parameters") or {})

    def given_up(self) -> DeliveryError:
        """The time is over: let the thread go, and say whether the message may have arrived."""
        if self._connection is not None and self._connection.sock is not None:
            with contextlib.suppress(OSError):
                self._connection.sock.shutdown(2)
        where = "no answer" if self._sending else "no connection"
        return DeliveryError(f"{where} within {self._timeout:g} s", uncertain=self._sending)

    def _post(self, body: Mapping[str, Any]) -> tuple[int, dict[str, Any]]:
        base = urllib.parse.urlsplit(self._spec.get("api_base") or TELEGRAM)
        path = f"{base.path.rstrip('/')}/bot{self._token}/sendMessage"
        self._sending = False
        try:
            connection = self._connected(base)
            target = f"http://{base.netloc}{path}" if self._absolute(base) else path
            self._sending = True
            headers = {"Content-Type": "application/json"}
            connection.request("POST", target, json.dumps(body), headers)
            response = connection.getresponse()
            status, raw = response.status, response.read(_MOST)
        except (OSError, http.client.HTTPException, ValueError) as error:
            said = scrub(f"{type(error).__name__}: {error}", self._token)
            raise DeliveryError(said, uncertain=self._sending) from None
        finally:
            if self._connection is not None:
                self._connection.close()
        try:
            answer = json.loads(raw)
        except ValueError:
            answer = None
        return status, answer if isinstance(answer, dict) else {}

    def _connected(self, base: urllib.parse.SplitResult) -> http.client.HTTPConnection:
        secure = base.scheme == "https"
        proxy = urllib.parse.urlsplit(self._spec.get("proxy") or "")
        host, port = str(base.hostname), base.port or (443 if secure else 80)
        at = (str(proxy.hostname), proxy.port or 3128) if proxy.hostname else (host, port)
        connection: http.client.HTTPConnection
        if secure:
            trust = ssl.create_default_context()
            connection = http.client.HTTPSConnection(*at, timeout=self._timeout, context=trust)
            if proxy.hostname:
                connection.set_tunnel(host, port)
        else:
            connection = http.client.HTTPConnection(*at, timeout=self._timeout)
        self._connection = connection
        connection.connect()
        return connection

    def _absolute(self, base: urllib.parse.SplitResult) -> bool:
        return base.scheme == "http" and bool(self._spec.get("proxy"))


def append(path: str, entry: str) -> str:
    """Append durably. A queue without a reader is refused instead of waited for."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK
    raw = entry.encode()
    try:
        file = os.open(path, flags, 0o640)
        try:
            if (written := os.write(file, raw)) != len(raw):
                with contextlib.suppress(OSError):  # half a line would spoil the next one
                    os.ftruncate(file, os.fstat(file).st_size - written)
                raise DeliveryError(f"{path}: written in part, the disk is full")
            if stat.S_ISREG(os.fstat(file).st_mode):
                os.fsync(file)
        finally:
            os.close(file)
    except OSError as error:
        raise DeliveryError(f"{path}: {os.strerror(error.errno or 0)}") from None
    return f"written to {path}"


def _secret_file(path: Path, called: str) -> str:
    try:
        value = path.read_text(encoding="utf-8").strip()
    except OSError as error:
        message = f"{called}: {os.strerror(error.errno or 0)}"
        raise DeliveryError(message, permanent=True) from None
    except UnicodeDecodeError:
        raise DeliveryError(f"{called}: not a text file", permanent=True) from None
    if not re.fullmatch(r"[\x21-\x7e]+", value) or value == PLACEHOLDER:
        raise DeliveryError(f"{called}: empty or not a token", permanent=True)
    return value


def _bare(error: DeliveryError) -> DeliveryError:
    error.__context__ = error.__cause__ = error.__traceback__ = None
    return error
