"""Remove environment variables for proxies and certificates that httpx cannot use."""

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
    """Remove invalid proxy and certificate variables; return one sentence for each of them.

    If a proxy remains, loopback addresses and ``host`` are added to ``no_proxy``. httpx reads these
    variables whenever a client is created. Gradio creates clients at import and requests its own
    page at start, so an invalid variable would end the program. Call this before threads start.
    """
    names = (*CERTIFICATES, *PROXIES, *EXEMPT)
    values = {name: os.environ.pop(name) for name in names if os.environ.get(name)}
    messages: list[str] = []
    for name, value in values.items():
        parts = value.split(",") if name in EXEMPT else [value]
        faults = {part: _fault(name, part.strip()) for part in parts}
        messages += filter(None, faults.values())
        if usable := [part for part, fault in faults.items() if not fault]:
            os.environ[name] = ",".join(usable)
    if any(name in os.environ for name in PROXIES):
        exempt = os.environ.get("no_proxy") or os.environ.get("NO_PROXY", "")
        listed = [part.strip() for part in exempt.split(",")]
        exempt = ",".join(dict.fromkeys(filter(None, [*listed, *LOOPBACK, host])))
        os.environ.update(dict.fromkeys(EXEMPT, exempt))
    return messages


def _fault(name: str, value: str) -> str:
    """Return a sentence on why httpx cannot use this value of a variable; "" if it can."""
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
