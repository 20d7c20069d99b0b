"""Which addresses meet on one port, as Linux decides it. Pure."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, ip_address

Address = IPv4Address | IPv6Address


def _address(text: str) -> Address | None:
    try:
        found = ip_address(text.strip("[]").partition("%")[0])
    except ValueError:
        return None
    mapped = found.ipv4_mapped if isinstance(found, IPv6Address) else None
    return mapped or found


def overlaps(held: str, wanted: str, *, only6: bool = False) -> bool:
    """Whether a server on `wanted` would meet the one that listens on `held`, on the same port.

    [::] counts as dual unless `only6` says of the held one that it leaves IPv4 alone. A name that
    is no literal address meets everything.
    """
    one, other = _address(held), _address(wanted)
    if one is None or other is None:
        return True
    if only6 and other.version == 4:
        return False
    for address in (one, other):
        if isinstance(address, IPv6Address) and address.is_unspecified:
            return True
    if one.version != other.version:
        return False
    return one.is_unspecified or other.is_unspecified or one == other
