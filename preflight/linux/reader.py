"""The child that touches files and asks servers, so that nobody else waits for a dead mount.

It answers one JSON line to each JSON line, until its input ends. Standard library only. It changes
nothing: the probe of `disk` is written to a file that has no name.
"""

from __future__ import annotations

import errno
import http.client
import json
import os
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

from preflight.linux import reader_access, reader_amd, reader_host, reader_models
from preflight.linux.reader_base import Json, fault, mount_of, user_name

_HEAD = 64
_MOST_LINKS = 40
_MOST_NEIGHBOURS = 200
_MOST_LISTED = 20_000
_PROBE = 1 << 20
_LARGEST_ANSWER = 4 << 20


def _nearest(path: str) -> Json:
    """The deepest part of a path that can still be looked at."""
    for parent in Path(path).parents:
        try:
            found = parent.stat()
        except OSError:
            continue
        return {
            "nearest": str(parent),
            "nearest_mtime_ns": found.st_mtime_ns,
            "nearest_writable": os.access(parent, os.W_OK | os.X_OK),
        }
    return {}


def _links(path: str) -> tuple[list[str], str]:
    """What each symbolic link says, from the path on, and where the last one ends."""
    said: list[str] = []
    here = path
    while len(said) < _MOST_LINKS:
        try:
            said.append(os.readlink(here))
        except OSError:
            break
        here = os.path.normpath(str(Path(here).parent / said[-1]))
    return said, here


def _first_bytes(path: str) -> Json:
    """A first read: stale handles, I/O errors and permissions show here and not in stat."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
        try:
            return {"head": os.read(fd, _HEAD).decode("latin-1")}
        finally:
            os.close(fd)
    except OSError as error:
        return {"read_fault": fault(error)["fault"]}


def look_at_file(asked: Json) -> Json:
    """One path: FileFact's fields, `head` as latin-1."""
    path = asked["path"]
    if not path.startswith("/") or "\0" in path:
        return {"fault": "EINVAL", "said": "not an absolute path"}
    links, end = _links(path)
    try:
        found = Path(path).stat()
    except OSError as error:
        return {**fault(error), "links": links, "target": end, **_nearest(path)}
    fact: Json = {
        "kind": "other",
        "size": found.st_size,
        "inode": found.st_ino,
        "mtime_ns": found.st_mtime_ns,
        "uid": found.st_uid,
        "mode": stat.S_IMODE(found.st_mode),
        "links": links,
        "target": os.path.realpath(path),
        "executable": os.access(path, os.X_OK),
        "writable": os.access(path, os.W_OK),
    }
    if stat.S_ISDIR(found.st_mode):
        return {**fact, "kind": "directory"}
    if stat.S_ISREG(found.st_mode):
        return {**fact, "kind": "file", **_first_bytes(path)}
    return fact


def list_neighbours(asked: Json) -> Json:
    """The regular files of a directory, newest first, at most a screenful or two of them."""
    found: list[tuple[float, str, int, int]] = []
    try:
        with os.scandir(asked["path"]) as entries:
            for number, entry in enumerate(entries):
                if number >= _MOST_LISTED:
                    break
                try:
                    seen = entry.stat()
                except OSError:
                    continue
                if stat.S_ISREG(seen.st_mode):
                    found.append((seen.st_mtime, entry.name, seen.st_size, seen.st_uid))
    except OSError as error:
        return fault(error)
    found.sort(reverse=True)
    rows = [
        {"name": name, "size": size, "mtime": mtime, "user": user_name(uid)}
        for mtime, name, size, uid in found[:_MOST_NEIGHBOURS]
    ]
    return {"rows": rows}


def _write_probe(directory: str) -> str:
    """Write and sync a file without a name: quotas and dying disks show only here."""
    try:
        try:
            fd = os.open(directory, os.O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC, 0o600)
        except OSError as error:
            if error.errno not in (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL):
                raise
            path = Path(directory) / f".runner-probe-{os.getpid()}"
            fd = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600)
            path.unlink()
        try:
            for _ in range(_PROBE // 65536):
                os.write(fd, b"\0" * 65536)
            os.fsync(fd)
        finally:
            os.close(fd)
    except OSError as error:
        return str(fault(error)["said"])
    return ""


def look_at_disk(asked: Json) -> Json:
    """The file system below a path: Disk's fields. A probe is written only where asked, and only
    into the directory itself, never into one above it.
    """
    path = asked["path"]
    place = path if Path(path).is_dir() else str(_nearest(path).get("nearest", ""))
    try:
        found = Path(path).stat() if place == path else Path(place).stat()
        if place != path and Path(path).exists():
            return {"fault": "ENOTDIR", "said": "is no directory"}
        space = os.statvfs(place)
    except OSError as error:
        return fault(error)
    writing = ""
    written = bool(asked.get("write")) and place == path
    if written:
        writing = _write_probe(place)
    elif asked.get("write") and not os.access(place, os.W_OK | os.X_OK):
        writing = f"{place} is not writable for {user_name(os.getuid())}"
    return {
        "kind": mount_of(os.path.realpath(place), found.st_dev)[0],
        "free_mib": space.f_bavail * space.f_frsize >> 20,
        "free_inodes": space.f_favail if space.f_files else None,
        "writing": writing,
        "written": written,
    }


def _secret(key: Json | None) -> str:
    """An API key, read here so that it never crosses a pipe. ValueError when there is none."""
    if not key:
        return ""
    if "file" in key:
        try:
            found = Path(str(key["file"])).read_text(encoding="utf-8").strip()
        except OSError as error:
            raise ValueError(os.strerror(error.errno or errno.EIO)) from error
    else:
        found = os.environ.get(str(key.get("env", "")), "")
    if not found:
        raise ValueError("it is empty")
    return found


def ask_server(asked: Json) -> Json:
    """GET one URL: Answer's fields. No proxy of the environment is ever used."""
    try:
        secret = _secret(asked.get("key"))
    except ValueError as error:
        return {"fault": "NOKEY", "said": f"the API key cannot be read: {error}"}
    headers = {"Accept": "application/json", "Connection": "close"}
    if secret:
        headers["Authorization"] = f"Bearer {secret}"
    try:
        return _get(asked["url"], headers, asked["within"])
    except TimeoutError:
        return {"fault": "TIMEOUT", "said": f"no answer within {asked['within']:.3g} s"}
    except OSError as error:
        return fault(error) if error.errno else {"fault": "EIO", "said": str(error)}
    except (http.client.HTTPException, ValueError) as error:
        return {"fault": "EPROTO", "said": f"no HTTP answer ({type(error).__name__})"}


def _get(text: str, headers: dict[str, str], within: float) -> Json:
    url = urlsplit(text)
    secure = url.scheme == "https"
    kind = http.client.HTTPSConnection if secure else http.client.HTTPConnection
    connection = kind(url.hostname or "", url.port, timeout=within)
    try:
        connection.request("GET", url.path + (f"?{url.query}" if url.query else ""), None, headers)
        answer = connection.getresponse()
        body = answer.read(_LARGEST_ANSWER).decode("utf-8", "replace")
        return {"status": answer.status, "body": body}
    finally:
        connection.close()


def name_user(asked: Json) -> Json:
    """The name of a uid; directories of users may hang too."""
    return {"name": user_name(asked["uid"])}


VERBS: dict[str, Callable[[Json], Json]] = {
    "file": look_at_file,
    "neighbours": list_neighbours,
    "gguf": reader_models.read_gguf,
    "model": reader_models.read_model,
    "safetensors": reader_models.read_safetensors,
    "vocabularies": reader_models.compare_vocabularies,
    "sample": reader_models.sample_file,
    "readable": reader_access.may_read,
    "disk": look_at_disk,
    "ask": ask_server,
    "user": name_user,
    "texts": reader_host.read_texts,
    "locks": reader_host.who_locks,
    "terminals": reader_host.open_terminals,
    "kernel_log": reader_host.kernel_log,
    "clock": reader_host.read_clock,
    "answered": reader_host.is_answered,
    "amd": reader_amd.read_amd,
}


def main() -> None:
    """Answer until the input ends, which it does when whoever asks has died."""
    for line in sys.stdin:
        asked = json.loads(line)
        try:
            answer = VERBS[asked["verb"]](asked)
        except Exception as error:  # noqa: BLE001 - the asker turns it into an unknown
            answer = {"fault": "CRASH", "said": f"{type(error).__name__}: {error}"}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()
