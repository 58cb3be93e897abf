"""Proxy and certificate variables of the environment, which httpx reads for every client."""

import os


def prepare_network() -> str:
    """Add loopback to ``no_proxy``; return why httpx cannot use the variables, "" if it can."""
    if not any("proxy" in name.lower() or name.startswith("SSL_CERT") for name in os.environ):
        return ""
    import httpx

    exempt = os.environ.get("no_proxy") or os.environ.get("NO_PROXY")
    exempt = ",".join(filter(None, [exempt, "localhost", "127.0.0.1", "::1"]))
    os.environ.update(no_proxy=exempt, NO_PROXY=exempt)
    try:
        httpx.Client().close()
    except (ImportError, OSError, ValueError, httpx.InvalidURL) as error:
        return f"httpx cannot use the proxy or certificate variables of the environment: {error}"
    return ""
