"""From figures and comparisons to tables and sentences. Measures nothing, knows no terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mars_runtime.lab.benchmark import compare, plan
from mars_runtime.lab.benchmark.compare import Compared
from mars_runtime.lab.benchmark.figures import PeerFigures, Percentiles, figures_of
from mars_runtime.lab.benchmark.measure import Measured
from mars_runtime.lab.evaluation.tables import NONE, Table, number, share
from mars_runtime.lab.profiling.forward import ForwardWork, MachineLimits, Rho
from mars_runtime.tasks import NATURAL

MIB, GIGA = 2**20, 1e9


def heading(batch_size: int) -> str:
    """How a series is called."""
    return "One prompt at a time" if batch_size == 1 else f"Batches of {batch_size}"


def in_short(measured: Sequence[Measured], compared: Sequence[Compared]) -> list[str]:
    """The answers that a reader looks for first, a sentence each; only what was measured."""
    found = []
    for series in measured:
        own = [one for one in compared if one.batch_size == series.batch_size]
        best = compare.best_transformers(series)
        for one in own:
            is_other_cache = one.peer.startswith((plan.BLOCK_CACHE, plan.NO_CACHE))
            if not plan.is_ours(one.peer) or (is_other_cache and one.baseline == plan.AR):
                continue
            if one.overall is not None or one.natural is not None:
                sentence = _sentence(one, is_best=one.baseline == best)
                found.append(f"{heading(series.batch_size)}: {sentence}")
    return found


def _sentence(one: Compared, *, is_best: bool) -> str:
    baseline = f"{one.baseline} (transformers' fastest)" if is_best else one.baseline
    parts = []
    if one.overall is not None:
        where = "mixed batches" if plan.MIXED in one.by_family else "the families' average"
        parts.append(f"{number(one.overall)} on {where}")
    if one.least is not None and len(one.by_family) > 2:
        parts.append(f"least {number(one.least[1])} on {one.least[0].replace('_', ' ')}")
    if one.natural is not None:
        parts.append(f"{number(one.natural)} on natural text")
    return f"{one.peer} over {baseline}, times the tokens/s: {', '.join(parts)}."


def speed_tables(series: Measured) -> list[Table]:
    """Rates and waits of every peer over the families, then on natural text."""
    columns = (
        *("peer", "threads", "tokens/s", "with prefill"),
        *("TTFT ms", "TPOT ms", "chunk ms", "TPF"),
    )
    tables = []
    for where, is_natural in (("over the families", False), ("on natural text", True)):
        samples = [one for one in series.samples if (one.family == NATURAL) == is_natural]
        lines = [
            (peer, str(series.threads[peer]), *_speeds(found))
            for peer in series.peers
            if (found := figures_of(samples, peer)) is not None
        ]
        if lines:
            title = f"{heading(series.batch_size)}, {where}: medians; waits as p50 / p99"
            tables.append(Table(title, columns, tuple(lines)))
    return tables


def _speeds(found: PeerFigures) -> tuple[str, ...]:
    return (
        f"{found.decode_rate:.0f}" if found.decode_rate else NONE,
        f"{found.whole_rate:.0f}",
        _waits(found.ttft),
        _waits(found.tpot),
        _waits(found.gap),
        f"{found.tpf:.2f}",
    )


def comparisons_table(batch_size: int, compared: Sequence[Compared]) -> Table:
    """A line a comparison: average, least family, natural text, with prefill, eta, agreement."""
    columns = ("peer / baseline", "families", "least", "natural", "with prefill", "eta", "same")
    lines = [
        (
            one.name,
            number(one.overall),
            f"{number(one.least[1])} · {one.least[0]}" if one.least else NONE,
            number(one.natural),
            number(one.whole),
            number(one.eta),
            share(one.agreement),
        )
        for one in compared
        if one.batch_size == batch_size
    ]
    title = f"{heading(batch_size)}: how many times the tokens/s, with 95 % intervals"
    return Table(title, columns, tuple(lines))


def families_table(batch_size: int, compared: Sequence[Compared]) -> Table:
    """One line per comparison, one column per family."""
    own = [one for one in compared if one.batch_size == batch_size]
    families = list(dict.fromkeys(family for one in own for family in one.by_family))
    lines = [(one.name, *(number(one.by_family.get(family)) for family in families)) for one in own]
    title = f"{heading(batch_size)}: how many times the tokens/s by family (prefill apart)"
    return Table(title, ("peer / baseline", *families), tuple(lines))


def work_table(series: Measured, floor_seconds: float) -> Table:
    """What forwards cost beside what the machine allows, forwards of a draft model for each of
    them, memory, and which output came."""
    columns = (
        *("peer", "ms per forward", "share of bound", "tokens per forward"),
        *("peak MiB", "output", "repeats", "draft forwards"),
    )
    lines = []
    for peer in series.peers:
        found = figures_of(series.samples, peer)
        assert found is not None, "a peer of a series has samples"
        seconds = found.forward_seconds
        lines.append(
            (
                peer,
                f"{seconds * 1000:.2f}" if seconds else NONE,
                f"{floor_seconds / seconds:.0%}" if seconds else NONE,
                f"{found.effective_tpf:.2f}",
                f"{series.peak_bytes[peer] / MIB:.1f}" if peer in series.peak_bytes else NONE,
                found.output_id[:8],
                "same" if found.is_repeatable else "differ",
                f"{found.draft_forwards:.2f}" if found.draft_forwards else NONE,
            )
        )
    title = f"{heading(series.batch_size)}: forwards, memory beyond the weights, output"
    return Table(title, columns, tuple(lines))


def survivals(series: Measured) -> dict[str, tuple[float, ...]]:
    """Peer -> acceptance by position, of those here that proposed more than one token."""
    found = {peer: figures_of(series.samples, peer) for peer in filter(plan.is_ours, series.peers)}
    return {
        peer: one.survival
        for peer, one in found.items()
        if one is not None and len(one.survival) > 1
    }


def survival_table(series: Measured) -> Table:
    """Acceptance by position: of the forwards that proposed so far, the share that gave a token."""
    found = survivals(series)
    widest = max(map(len, found.values()), default=0)
    lines = [
        (peer, *(f"{value:.0%}" for value in values), *[NONE] * (widest - len(values)))
        for peer, values in found.items()
    ]
    title = f"{heading(series.batch_size)}: acceptance by position (lossless: of drafts verified)"
    return Table(title, ("peer", *map(str, range(1, widest + 1))), tuple(lines))


def rates_table(series: Measured) -> Table:
    """A line a peer: tokens/s and tokens per forward of each family, and the time to the first
    token where it was taken by itself."""
    columns = ["peer", *series.families]
    if series.first_seconds:
        columns.append(f"ms to the first token of a prompt of {series.first_length}")
    lines = []
    for peer in series.peers:
        line = [peer]
        for family in series.families:
            found = figures_of([one for one in series.samples if one.family == family], peer)
            line.append(_rate(found) if found else NONE)
        if series.first_seconds:
            line.append(f"{series.first_seconds[peer] * 1000:.0f}")
        lines.append(tuple(line))
    title = f"{heading(series.batch_size)}: tokens/s by family, prefill apart · tokens per forward"
    return Table(title, tuple(columns), tuple(lines))


def _rate(found: PeerFigures) -> str:
    rate = f"{found.decode_rate:.0f}" if found.decode_rate else NONE
    return f"{rate} · {found.tpf:.2f}"


def impossible(
    compared: Sequence[Compared], curves: Mapping[int, Sequence[Rho]], spread: float
) -> list[str]:
    """A sentence for each speedup that tokens per forward can't explain.

    A way can't be faster than AR by more than its tokens per forward times what its forwards may
    save: the cheapest forward on the curve over that of one token, and how far AR's repeats lie
    apart (``spread``).
    """
    found = []
    for one in compared:
        curve = curves.get(one.batch_size, ())
        cheapest = min([1.0, *(point.rho.value for point in curve)])
        most = (1 + spread) / cheapest
        if one.eta is not None and one.eta.low > most:
            found.append(
                f"{one.name} can't be right: it is {one.eta.value:.2f} times as fast as its tokens "
                f"per forward allow, and the costs of forwards explain {most:.2f} at most."
            )
    return found


def rho_table(curves: Mapping[int, Sequence[Rho]]) -> Table:
    """rho(Q) by batch size."""
    widths = [one.width for one in next(iter(curves.values()))]
    lines = [
        (
            str(rows),
            f"{curve[0].seconds * 1000:.2f}",
            *(f"{one.rho.value:.2f}" for one in curve),
        )
        for rows, curve in curves.items()
    ]
    title = "rho(Q): time of a forward of Q tokens per row over that of one, acceptance included"
    columns = ("batch", "ms at Q=1", *(f"Q={width}" for width in widths))
    return Table(title, columns, tuple(lines))


def limits_table(limits: MachineLimits, load: ForwardWork, threads: int) -> Table:
    """What the machine can do, measured, and what an AR forward asks of it."""
    floor = limits.floor_seconds(load.weight_bytes, load.operations(1, 1))
    speed = limits.operations_per_second
    line = (
        str(threads),
        f"{load.weight_bytes / MIB:.1f}",
        f"{limits.bytes_per_second / GIGA:.1f}",
        NONE if speed is None else f"{speed / GIGA:.1f}",
        f"{floor * 1000:.3f}",
    )
    columns = ("threads", "weights MiB", "read GB/s", "GFLOP/s", "least ms an AR forward")
    return Table("Limits of this machine, measured at the size of the weights", columns, (line,))


def tables_of(series: Measured, compared: Sequence[Compared], floor_seconds: float) -> list[Table]:
    """Every table of a series."""
    found = speed_tables(series)
    found.append(comparisons_table(series.batch_size, compared))
    if len(series.families) > 2:
        found.append(families_table(series.batch_size, compared))
        found.append(rates_table(series))
    found.append(work_table(series, floor_seconds))
    survival = survival_table(series)
    return [*found, survival] if survival.lines else found


def _waits(found: Percentiles | None) -> str:
    if found is None:
        return NONE
    return f"{found.p50 * 1000:.1f} / {found.p99 * 1000:.1f}"
