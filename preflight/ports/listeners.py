"""The process behind a port in words: a person's server, a proxy, an engine's helper, systemd itself."""

from __future__ import annotations

from itertools import pairwise

from preflight.box import Proc
from preflight.wording import command, when

_PROXIES = frozenset(
    {"nginx", "caddy", "haproxy", "traefik", "envoy", "litellm", "llama-swap", "apache2", "httpd"}
)


def person(proc: Proc) -> str:
    """A process for people: who, which, since when, as part of what."""
    parts = [proc.user or f"uid {proc.uid}", f"pid {proc.pid}"]
    if proc.since is not None:
        parts.append(f"since {when(proc.since)}")
    if proc.unit:
        parts.append(proc.unit)
    return ", ".join(parts)


def manages(proc: Proc) -> bool:
    """Whether it is systemd itself, which holds the sockets of socket units for others."""
    if proc.pid == 1:
        return True
    program = proc.argv[0].rsplit("/", 1)[-1] if proc.argv else ""
    return program in ("systemd", "(systemd)") and "--user" in proc.argv


def brief(proc: Proc) -> str:
    """A process in a few words: its number, and what it runs or stands for."""
    behind = proxied(proc.argv)
    if behind:
        return f"pid {proc.pid} {command(proc.argv[:1])} for {behind}"
    if manages(proc):
        return f"pid {proc.pid} systemd for a socket unit"
    return f"pid {proc.pid} {command(proc.argv) or '(no command line)'}"


def proxied(argv: tuple[str, ...]) -> str:
    """What a container engine's port proxy stands for, from its own command line; else empty.

    Docker starts one docker-proxy a published port (moby PR#7548); rootless podman has
    rootlessport, pasta or slirp4netns, which name no container.
    """
    program = argv[0].rsplit("/", 1)[-1] if argv else ""
    if program == "docker-proxy":
        said = dict(pairwise(argv))
        address, port = said.get("-container-ip", "?"), said.get("-container-port", "?")
        return f"the container at {address}, port {port}"
    if program in ("rootlessport", "slirp4netns", "pasta", "pasta.avx2"):
        return "a rootless container"
    return ""


def forwards(proc: Proc) -> bool:
    """Whether it only hands requests on to the server that production really is."""
    words = {word.rstrip(":").rsplit("/", 1)[-1] for word in proc.argv[:2]}
    return bool(words & _PROXIES)
