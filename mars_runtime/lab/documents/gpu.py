"""Views of what ``tools/measure_gpu.py`` wrote: a result in, a table out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mars_runtime.lab.documents.views import Content, estimate
from mars_runtime.lab.benchmark.forward import CONTEXT, ForwardWork
from mars_runtime.lab.tables import NONE, Table

PREFIX = "gpu_"
"""How the names of these results begin. Their tables exist before they do."""


def gpu_rates(content: Content) -> Table:
    """Speed of every peer: what it is of AR's, what that is of the tokens per forward pass, and how
    near AR comes to the time that reading its weights takes."""
    work = ForwardWork(**content["load"])
    compared = {
        (one["batch_size"], one["peer"], one["baseline"]): one for one in content["comparisons"]
    }
    lines = []
    for series in content["series"]:
        rows = series["batch_size"]
        seconds = work.num_bytes(rows, CONTEXT) / content["machine"]["bytes_per_second"]
        for one in series["peers"]:
            peer, found = one["peer"], one["families"]
            against = compared.get((rows, peer, "AR"), {})
            rate = found["decode_rate"]
            lines.append(
                (
                    peer if rows == 1 else f"{peer}, batches of {rows}",
                    f"{rate:.1f}" if rate else NONE,
                    f"{found['tpf']:.2f}",
                    _over_ar(compared, rows, peer),
                    estimate(against.get("eta")),
                    f"{rate * seconds / rows:.2f}" if rate and peer == "AR" else NONE,
                )
            )
    columns = ("tokens/s", "TPF", "times AR", "of its TPF", "of the read limit")
    return Table("", (_origin(content), *columns), tuple(lines))


def gpu_widths(content: Content) -> Table:
    """Time of a forward pass of Q tokens per row over that of one, by rows."""
    rows = sorted({one["num_rows"] for one in content["rho"]})
    widths = sorted({one["width"] for one in content["rho"]})
    found = {(one["num_rows"], one["width"]): one for one in content["rho"]}
    lines = tuple(
        (
            f"{count} {'row' if count == 1 else 'rows'}",
            f"{found[count, 1]['seconds'] * 1000:.2f}",
            *(f"{found[count, width]['rho']['value']:.2f}" for width in widths),
        )
        for count in rows
    )
    columns = ("ms at Q = 1", *(f"Q = {width}" for width in widths))
    return Table("", (_origin(content), *columns), lines)


def gpu_steps(content: Content) -> Table:
    """Time of a step, of the kernels in it, and what is left for the host."""
    lines = []
    for name, way in content["ways"].items():
        (step,) = [one["seconds"] for one in way["parts"] if one["part"] == "step"]
        kernels = way["device_seconds"]
        split = (NONE, NONE) if kernels is None else (_ms(kernels), _ms(step - kernels))
        lines.append((name, _ms(step), *split))
    columns = ("ms per step", "kernels", "host")
    return Table("", (_origin(content), *columns), tuple(lines))


def gpu_adapter(content: Content) -> Table:
    """Held-out tokens per forward pass while an adapter was trained, averaged over the kinds."""
    lines = [
        (one["time"], f"{one['step']:,}", f"{one['masks']:,}", f"{one['mean']:.2f}")
        for one in content["history"]
    ]
    columns = ("steps", "masks", "TPF, a group after every pending token")
    return Table("", (_origin(content), *columns), tuple(lines))


def _over_ar(compared: Mapping[Any, Any], rows: int, peer: str) -> str:
    """The ratio of a peer's speed to AR's. Of transformers' only the inverse is compared."""
    if found := compared.get((rows, peer, "AR")):
        return estimate(found["overall"])
    inverse = compared.get((rows, "AR", peer), {}).get("overall")
    if not inverse:
        return NONE
    low, high = 1 / inverse["high"], 1 / inverse["low"]
    return estimate({"value": 1 / inverse["value"], "low": low, "high": high})


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.3f}"


def _origin(content: Content) -> str:
    """What was measured, on what, with what and when."""
    hardware = content["hardware"]
    where = hardware["gpus"][0] if hardware["gpus"] else hardware["processor"]
    subject = content.get("subject", {})
    what = [subject[key] for key in ("name", "dtype") if key in subject]
    return ", ".join([*what, where, f"torch {content['versions']['torch']}", content["date"][:10]])
