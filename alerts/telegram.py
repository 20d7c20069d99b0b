"""Telegram, through python-telegram-bot's bare Bot. The only place that knows that library."""

import asyncio
import functools
import ipaddress
import logging
import re
import ssl
import urllib.parse
import warnings
from typing import TYPE_CHECKING, Annotated, Any, Literal

import certifi
from pydantic import AfterValidator, BeforeValidator, StrictInt

from alerts import plain
from alerts.channel import WITHIN, Channel, SecretRef
from alerts.message import Alert, DeliveryError, clip, scrub

if TYPE_CHECKING:
    import telegram


def _chat(chat: object) -> int | str:
    if isinstance(chat, int) and not isinstance(chat, bool):
        return chat
    if isinstance(chat, str) and re.fullmatch(r"@[A-Za-z]\w{3,}", chat):
        return chat
    raise ValueError('not a chat → a number without quotes like -1001234567890, or "@name"')


def _server(url: str) -> str:
    parts = urllib.parse.urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ValueError(f"not a server → write it like {plain.TELEGRAM}")
    if parts.username or parts.query or parts.fragment:
        raise ValueError("only scheme, host, port and path → leave out user, ? and #")
    if parts.scheme == "http" and not _is_near(parts.hostname):
        raise ValueError("http would send the token readable → use https, or an address nearby")
    return url.rstrip("/")


def _proxy(url: str) -> str:
    parts = urllib.parse.urlsplit(url)
    if parts.scheme != "http" or not parts.hostname or parts.username:
        raise ValueError(
            'not a proxy → write it like "http://proxy.example:3128", without a password'
        )
    return url


def _is_near(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_private
    except ValueError:
        return False


class Telegram(Channel):
    """A chat, group or channel of Telegram, told by a bot of yours."""

    kind: Literal["telegram"] = "telegram"
    token: SecretRef
    chat_id: Annotated[int | str, BeforeValidator(_chat)]
    message_thread_id: StrictInt | None = None
    api_base: Annotated[str, AfterValidator(_server)] = plain.TELEGRAM
    proxy: Annotated[str, AfterValidator(_proxy)] | None = None

    def deliver(self, alert: Alert, *, within: float = WITHIN) -> str:
        """Send one plain message; by the standard library where the library does not load."""
        if not _loads():
            return plain.deliver(self.spec(), alert.sendable, within, alert)
        return plain.within(
            within, lambda tell: asyncio.run(self._send(alert.sendable, within, tell))
        )

    def spec(self) -> dict[str, Any]:
        """All of it: recovery sends by http.client."""
        return self.model_dump(exclude_none=True, mode="json")

    async def _send(self, text: str, within: float, tell: plain.Tell) -> None:
        """Tell before the loop is closed: closing it waits for name look-ups that still hang."""
        token = self.token.read()
        try:
            async with asyncio.timeout(within * 0.95):
                tell(f"message {await self._message(token, text, within)}")
        except TimeoutError:
            tell(DeliveryError(f"no answer within {within:g} s", uncertain=True))
        except Exception as error:  # noqa: BLE001 - judged one by one, and none may escape with the token
            tell(judged(error, token))

    async def _message(self, token: str, text: str, within: float) -> int:
        from telegram import LinkPreviewOptions  # noqa: PLC0415 - see _loads
        from telegram.error import ChatMigrated  # noqa: PLC0415 - see _loads

        bot = _bot(token, self.api_base, self.proxy, within)
        try:
            send = functools.partial(
                bot.send_message,
                message_thread_id=self.message_thread_id,
                parse_mode=None,  # file names are full of what Markdown chokes on
                link_preview_options=LinkPreviewOptions(is_disabled=True),
            )
            try:
                message = await send(self.chat_id, text)
            except ChatMigrated as error:
                message = await send(error.new_chat_id, f"{text}\n{plain.moved(error.new_chat_id)}")
            return message.message_id
        finally:
            await bot.request.shutdown()


def _loads() -> bool:
    try:
        import telegram  # noqa: F401, PLC0415 - 0.3 s that only an alert should cost
    except Exception:  # noqa: BLE001 - a half-upgraded library fails in any way, and the alert must go out
        return False
    return True


def _bot(token: str, api_base: str, proxy: str | None, within: float) -> "telegram.Bot":
    """A bot that has asked nothing yet: a getMe in front would be one more thing that can fail."""
    from telegram import Bot  # noqa: PLC0415 - see _loads
    from telegram.request import HTTPXRequest  # noqa: PLC0415 - see _loads
    from telegram.warnings import PTBDeprecationWarning  # noqa: PLC0415 - see _loads

    # They log the address of each request at INFO, and the token is a part of it.
    for name in ("httpx", "httpcore", "telegram"):
        logging.getLogger(name).setLevel(logging.WARNING)
    warnings.simplefilter("ignore", PTBDeprecationWarning)  # RetryAfter warns of itself
    trust = ssl.create_default_context()
    trust.load_verify_locations(certifi.where())  # beside the system's, which may be empty
    request = HTTPXRequest(
        connection_pool_size=1,
        connect_timeout=within / 2,
        read_timeout=within * 0.9,
        write_timeout=within / 2,
        proxy=proxy,
        # Proxies of the environment are not for us: cron, systemd and a shell would differ.
        httpx_kwargs={"trust_env": False, "verify": trust},
    )
    return Bot(token, base_url=f"{api_base}/bot", request=request, get_updates_request=request)


def judged(error: Exception, token: str) -> DeliveryError:
    """What an error of the library means for the next try; its text never holds the token."""
    from telegram import error as errors  # noqa: PLC0415 - see _loads

    said = clip(scrub(str(error), token), 200)
    if isinstance(error, DeliveryError):
        return error
    if isinstance(error, errors.RetryAfter):
        wait = error.retry_after
        seconds = wait if isinstance(wait, int) else wait.total_seconds()
        return plain.refusal(429, "", {"retry_after": seconds})
    # In this order: for the library a BadRequest is a NetworkError, which would be tried for ever.
    statuses = ((errors.InvalidToken, 401), (errors.Forbidden, 403), (errors.BadRequest, 400))
    for kind, status in statuses:
        if isinstance(error, kind):
            return plain.refusal(status, said, {})
    if isinstance(error, errors.NetworkError):
        return _network(error, said)
    if isinstance(error, errors.TelegramError):
        return DeliveryError(f"{plain.NOT_THE_API} ({said})")
    return DeliveryError(f"{type(error).__name__}: {said}")


def _network(error: Exception, said: str) -> DeliveryError:
    """A fault on the way: without a connection nothing can have arrived, later it may have."""
    import httpx  # noqa: PLC0415 - see _loads
    from telegram.error import TelegramError  # noqa: PLC0415 - see _loads

    cause = error.__cause__
    if cause is None or isinstance(cause, TelegramError):
        return DeliveryError(f"Telegram has a fault ({said})")
    if not isinstance(cause, httpx.HTTPError):
        return DeliveryError(said)
    if isinstance(cause, httpx.ConnectTimeout | httpx.PoolTimeout):
        return DeliveryError("no connection in time")
    if isinstance(cause, httpx.TimeoutException):
        return DeliveryError("no answer in time", uncertain=True)
    return DeliveryError(
        said, uncertain=not isinstance(cause, httpx.ConnectError | httpx.ProxyError)
    )
