"""A worker in namespaces of its own: its own process ids, ports, mounts; all of it ends with it.

What a machine does not allow is done without: then the worker is only a subreaper, and slower,
since every look at /proc sees the whole machine.
"""

import ctypes
import fcntl
import os
import signal
import socket
import struct
import traceback
from collections.abc import Callable
from pathlib import Path

_NEWNS, _NEWUSER, _NEWPID, _NEWNET = 0x00020000, 0x10000000, 0x20000000, 0x40000000
_PRIVATE, _NOSUID, _NODEV = 1 << 18 | 1 << 14, 2, 4
_READ_ONLY, _REMOUNT, _BIND = 1, 32, 4096
_UP = struct.pack("16sh", b"lo", 1 | 1 << 6)
_SIOCSIFFLAGS = 0x8914
_SET_PDEATHSIG = 1

_libc = ctypes.CDLL(None, use_errno=True)


def _done(result: int) -> None:
    if result != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def prctl(option: int, value: int) -> None:
    """One of Linux's knobs of a process."""
    _done(_libc.prctl(option, value, 0, 0, 0))


def mount(kind: str, target: Path, options: str = "") -> None:
    """Mount a file system that needs no device."""
    target.mkdir(parents=True, exist_ok=True)
    _done(
        _libc.mount(
            kind.encode(), str(target).encode(), kind.encode(), _NOSUID | _NODEV, options.encode()
        )
    )


def make_read_only(target: Path) -> None:
    """Nothing can be written below a directory any more, by whatever path; `unmount` undoes it.

    What is open already can be: a file system with open files cannot be made read-only as a whole.
    """
    path = str(target).encode()
    _done(_libc.mount(path, path, None, _BIND, None))
    _done(_libc.mount(None, path, None, _BIND | _REMOUNT | _READ_ONLY | _NOSUID | _NODEV, None))


def unmount(target: Path) -> None:
    """Take a file system away."""
    _done(_libc.umount2(str(target).encode(), 2))


def worker(act: Callable[[bool], None]) -> int:
    """Run `act(apart)` in a process that lives apart where the machine allows it; the pid to wait for.

    The process one waits for is the outer one; it ends when the inner one does, and takes it along.
    """
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        prctl(_SET_PDEATHSIG, signal.SIGKILL)
        code = _inner(act)
    finally:
        os._exit(code)


def _inner(act: Callable[[bool], None]) -> int:
    try:
        _unshare()
        apart = True
    except OSError:
        apart = False
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            prctl(_SET_PDEATHSIG, signal.SIGKILL)
            if apart:
                _settle_in()
            act(apart)
            code = 0
        except BaseException:  # noqa: BLE001 - a fork must never return into its parent's code
            traceback.print_exc()
        finally:
            os._exit(code)
    _, status = os.waitpid(pid, 0)
    return 0 if status == 0 else 1


def _unshare() -> None:
    if os.geteuid() == 0:
        _done(_libc.unshare(_NEWNS | _NEWPID | _NEWNET))
        return
    uid, gid = os.getuid(), os.getgid()
    _done(_libc.unshare(_NEWUSER | _NEWNS | _NEWPID | _NEWNET))
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"0 {uid} 1")
    Path("/proc/self/gid_map").write_text(f"0 {gid} 1")


def _settle_in() -> None:
    _done(_libc.mount(None, b"/", None, _PRIVATE, None))
    mount("proc", Path("/proc"))
    with socket.socket() as any_socket:
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, _UP)
