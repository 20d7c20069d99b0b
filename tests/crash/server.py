"""The smallest server that can play production or a candidate, evil on demand. Standard library.

It is up in some 20 ms. An exclusive flock on one file is "the GPU": a second tenant is written down
in the ledger, and so is every start. Production is a witness too: asked to end, it writes down
whether the way back lies on disk and whether a guardian lives.
"""

import json
import os
import signal
import socket
import sys
import time


def options(words):
    """`--name value` and `--flag` as a dict."""
    found, place = {}, 0
    while place < len(words):
        name = words[place].removeprefix("--")
        if place + 1 < len(words) and not words[place + 1].startswith("--"):
            found[name] = words[place + 1]
            place += 1
        else:
            found[name] = "yes"
        place += 1
    return found


def started(pid):
    """Field 22 of /proc/PID/stat: with the pid, who this is for ever."""
    with open(f"/proc/{pid}/stat") as file:
        return int(file.read().rpartition(")")[2].split()[19])


class Ledger:
    """One line for each thing that happened on the box, appended whole by whoever it happened to."""

    def __init__(self, path, role):
        self.fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
        self.role = role

    def write(self, what, **more):
        """Append one line."""
        pid = os.getpid()
        at = time.clock_gettime(time.CLOCK_BOOTTIME)
        said = {"what": what, "role": self.role, "pid": pid, "start": started(pid), "at": at}
        os.write(self.fd, json.dumps(said | more).encode() + b"\n")


def guardians(state):
    """How many guardians of this state directory live."""
    count = 0
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                words = file.read().split(b"\0")
        except OSError:
            continue
        count += b"guardian" in words and state.encode() in words
    return count


def witness(ledger, given):
    """What stands on disk and who lives in the moment in which production is asked to end."""
    state = given["state"]
    try:
        with open(f"{state}/recovery.json") as file:
            recipe = bool(json.load(file).get("services"))
    except (OSError, ValueError):
        recipe = False
    ledger.write("term", recipe=recipe, guardians=guardians(state))


def take_gpu(path, ledger):
    """One GPU; whoever finds it taken says so and goes on, as a real server would crash."""
    import fcntl

    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    os.set_inheritable(fd, True)  # whatever it leaves behind goes on holding the memory
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        try:
            said = os.pread(fd, 200, 0).decode()
        except OSError:
            said = "?"
        ledger.write("double", holder=said)
        return
    os.ftruncate(fd, 0)
    os.pwrite(fd, f"{ledger.role} {os.getpid()}".encode(), 0)


def detach(ledger, *, session):
    """A child of a child, orphaned at once; it ignores TERM and holds whatever we hold."""
    if os.fork() == 0:
        if session:
            os.setsid()
        if os.fork() == 0:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            ledger.write("stray")
            while True:
                signal.pause()
        os._exit(0)
    os.wait()


ANSWER = {
    "choices": [{"message": {"content": "A port is a number."}, "text": "A port is a number."}],
    "usage": {"prompt_tokens": 8, "completion_tokens": 16, "total_tokens": 24},
    "timings": {"prompt_ms": 1.0, "predicted_ms": 10.0, "prompt_n": 8, "predicted_n": 16},
}


def answer(given, path, ready):
    """(status, object) for one request."""
    if path == "/health":
        return (200 if ready else 503), {"status": "ok" if ready else "loading"}
    if not ready:
        return 503, {"error": {"message": "loading"}}
    if path == "/v1/models":
        return 200, {"data": [{"id": os.path.basename(given["model"])}]}
    if path.startswith("/v1/"):
        return (500, {"error": {"message": "mute"}}) if given.get("mute") else (200, ANSWER)
    return 404, {"error": {"message": "no such page"}}


def request(connection):
    """The path of one request, its body read and forgotten."""
    connection.settimeout(5)
    held = b""
    while b"\r\n\r\n" not in held:
        piece = connection.recv(65536)
        if not piece:
            return None
        held += piece
    head, _, body = held.partition(b"\r\n\r\n")
    length = 0
    for line in head.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        if name.strip().lower() == b"content-length":
            length = int(value)
    while len(body) < length:
        body += connection.recv(65536) or b" " * length
    return head.split(b" ", 2)[1].decode()


def serve(given, ready_at):
    """Answer one request after the other, for ever."""
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", int(given["port"])))
    listener.listen(64)
    while True:
        connection, _ = listener.accept()
        with connection:
            try:
                path = request(connection)
                if path is None:
                    continue
                status, said = answer(given, path, time.monotonic() >= ready_at)
                body = json.dumps(said).encode()
                head = f"HTTP/1.1 {status} x\r\nContent-Type: application/json\r\n"
                head += f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
                connection.sendall(head.encode() + body)
            except OSError:
                continue


def main():
    """Be what the command line says."""
    given = options(sys.argv[1:])
    if given.get("clear-env") and set(os.environ) - {"LC_CTYPE"}:  # Python sets that one itself
        os.execve(sys.executable, [sys.executable, "-I", "-S", *sys.argv], {})  # noqa: S606 - on purpose
    ledger = Ledger(given["ledger"], given["role"])
    ledger.write("start")

    def term(*_):
        if given.get("state"):
            witness(ledger, given)
        if not given.get("ignore-term"):
            os._exit(0)

    signal.signal(signal.SIGTERM, term)
    began = time.monotonic()
    if not os.path.exists(given["model"]):
        sys.exit(f"failed to open {given['model']}")
    for path in given["gpu"].split(","):
        take_gpu(path, ledger)
    for flag in ("double-fork", "setsid"):
        if given.get(flag):
            detach(ledger, session=flag == "setsid")
    work(given, began)


def work(given, began):
    """Until the end of a task, or for ever."""
    if given.get("task"):
        while time.monotonic() - began < float(given["task"]):
            time.sleep(0.02)  # noqa: TID251 - a program of its own, without our modules
        return
    ready_at = began + float(given.get("load", 0))
    while given.get("late") and time.monotonic() < ready_at:  # as engines that listen when loaded
        time.sleep(0.01)  # noqa: TID251 - likewise
    serve(given, ready_at)


main()
