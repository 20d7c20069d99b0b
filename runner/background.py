"""One piece of work in a thread, so that whoever needs its answer can go on watching."""

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

Answer = TypeVar("Answer")


class Background(Generic[Answer]):
    """Work that has begun. It cannot be cancelled; ending what it waits for ends it."""

    def __init__(self, work: Callable[[], Answer]) -> None:
        self._work = work
        self._answer: list[Answer] = []
        self._error: list[BaseException] = []
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._answer.append(self._work())
        except BaseException as error:  # noqa: BLE001 - raised again where the answer is asked for
            self._error.append(error)

    def answer(self) -> tuple[Answer] | None:
        """The answer in a tuple once it is there, else None. Raises what the work raised."""
        if self._error:
            raise self._error[0]
        return (self._answer[0],) if self._answer else None
