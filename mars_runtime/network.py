"""Proxy and certificate variables of the environment, reduced to those that httpx can use."""

from __future__ import annotations

import os

CERTIFICATES = ("SSL_CERT_FILE", "SSL_CERT_DIR")
PROXIES = tuple(
    variable
    for name in ("http_proxy", "https_proxy", "all_proxy")
    for variable in (name, name.upper())
)
EXEMPT = ("no_proxy", "NO_PROXY")
LOOPBACK = ("localhost", "127.0.0.1", "::1")
NO_CERTIFICATES = "{} is ignored: {} is not a readable file of certificates ({})."
NO_SOCKS = "{} is ignored: a SOCKS proxy needs httpx[socks], which is not installed."
NO_PROXY_ADDRESS = "{} is ignored: write the proxy as http://host:port."
NO_HOST = "{} is ignored in part: {} is neither a host name nor an address."


def repair_network(host: str = "") -> list[str]:
    """Remove the variables that httpx cannot use, and exempt loopback addresses and ``host`` from
    proxies. Return one sentence for each removed value.

    httpx reads these variables whenever a client is created. Gradio creates clients while it is
    imported, and requests a page from its own server when it starts: one invalid variable would end
    a program that fetches nothing. Call this before other threads start.
    """
    names = (*CERTIFICATES, *PROXIES, *EXEMPT)
    values = {name: os.environ.pop(name) for name in names if os.environ.get(name)}
    dropped: list[str] = []
    for name, value in values.items():
        parts = value.split(",") if name in EXEMPT else [value]
        faults = {part: _fault(name, part.strip()) for part in parts}
        dropped += filter(None, faults.values())
        if usable := [part for part, fault in faults.items() if not fault]:
            os.environ[name] = ",".join(usable)
    if any(name in os.environ for name in PROXIES):
        exempt = os.environ.get("no_proxy") or os.environ.get("NO_PROXY", "")
        listed = [part.strip() for part in exempt.split(",")]
        exempt = ",".join(dict.fromkeys(filter(None, [*listed, *LOOPBACK, host])))
        os.environ.update(dict.fromkeys(EXEMPT, exempt))
    return dropped


def _fault(name: str, value: str) -> str:
    """Return why httpx cannot use this value on its own; empty if it can."""
    import httpx

    os.environ[name] = value
    try:
        httpx.Client(verify=name in CERTIFICATES).close()
    except ImportError:
        return NO_SOCKS.format(name)
    except OSError as error:
        return NO_CERTIFICATES.format(name, value, error.strerror or type(error).__name__)
    except (ValueError, httpx.InvalidURL):
        return NO_HOST.format(name, value) if name in EXEMPT else NO_PROXY_ADDRESS.format(name)
    finally:
        del os.environ[name]
    return ""
