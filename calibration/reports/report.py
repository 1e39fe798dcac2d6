"""One self-contained HTML page about a calibration: what it recommends, how well its laws fit, and how far to trust them.

A report is a list of sections; each is made by a function from a `Subject` (the calibration, and the runs where they are
given) to a `Section`, or to None where there is nothing to say. Another study adds its own by appending to that list.
The page needs no network: pictures are inline SVG whose ink follows the page's light or dark theme. Every text that comes
from a file is escaped.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from calibration.fitting.intervals import parameter_intervals
from calibration.reports import plots
from planner.allocation import FLOPS_PER_PARAM_TOKEN
from planner.calibration_files import Calibration, Setting
from planner.errors import InvalidInput
from planner.laws import FORMS, check_form, parameter_names
from planner.units import count, scientific, short


@dataclass(frozen=True)
class Subject:
    """What a report is about."""

    calibration: Calibration
    runs: pd.DataFrame | None = None
    ud: float | None = None  # unique tokens of the allocation; by default the middle of what was fitted on
    law: str | None = None

    @property
    def form(self) -> str:
        return self.law or self.calibration.default_law

    @property
    def unique_tokens(self) -> float:
        if self.ud is not None:
            return self.ud
        ranges = [setting.fitted_on.unique_tokens for setting in self.calibration.settings]
        return float(np.sqrt(min(low for low, _ in ranges) * max(high for _, high in ranges)))

    def runs_at(self, setting: Setting) -> pd.DataFrame | None:
        """The runs at a setting's weight decay; None where there are none."""
        if self.runs is None:
            return None
        here = self.runs[np.isclose(self.runs["weight_decay"], setting.weight_decay, rtol=1e-9, atol=1e-12)]
        return here if len(here) else None


@dataclass(frozen=True)
class Section:
    """A heading and the HTML below it (use `paragraph`, `table` and `picture`, which escape)."""

    title: str
    body: str


SectionMaker = Callable[[Subject], Section | None]


def report(
    calibration: Calibration,
    runs: pd.DataFrame | None = None,
    *,
    ud: Any = None,
    law: str | None = None,
    sections: Sequence[SectionMaker] | None = None,
    progress: Callable[[str, float], None] | None = None,
) -> str:
    """The page as HTML text."""
    if law is not None:
        check_form(law)
        calibration.settings[0].law(law)
    subject = Subject(calibration, runs, None if ud is None else count(ud, "ud"), law)
    if runs is not None and all(subject.runs_at(setting) is None for setting in calibration.settings):
        known = ", ".join(f"{decay:g}" for decay in calibration.weight_decays)
        raise InvalidInput(
            f"none of the runs has a weight decay of calibration {calibration.name} ({known}); give the runs it was fitted on."
        )
    makers = SECTIONS if sections is None else sections
    found = []
    for done, make in enumerate(makers):
        if progress is not None:
            progress(getattr(make, "__name__", "section").replace("_", " "), done / len(makers))
        if (made := make(subject)) is not None:
            found.append(made)
    return page(calibration.title or calibration.name, found)


# -- the sections ---------------------------------------------------------------------------------------------------------


def about(subject: Subject) -> Section:
    c = subject.calibration
    fields = [
        ("calibration", c.name),
        ("corpus", c.corpus),
        ("model family", c.model_family),
        ("source", c.source),
        ("recommended law", plots.LABELS[c.default_law]),
        ("why", _reason(c)),
    ]
    rows = [(name, value) for name, value in fields if value]
    for setting in c.settings:
        on = setting.fitted_on
        runs = f"{on.runs} runs, " if on.runs else ""
        rows.append(
            (
                f"fitted at λ = {setting.weight_decay:g}",
                f"{runs}{_span(on.params)} parameters, {_span(on.unique_tokens)} unique tokens, "
                f"{on.epochs[0]:g} to {on.epochs[1]:g} epochs",
            )
        )
    return Section("About", table(None, rows))


def recommendation(subject: Subject) -> Section:
    """What the laws say for one corpus over a range of compute, with the interval."""
    c, ud, form = subject.calibration, subject.unique_tokens, subject.form
    settings = [setting for setting in c.settings if form in setting.laws]
    try:
        once = plots.one_epoch_flops(settings[0].law(form), ud)
    except InvalidInput as error:  # the rest of the page is still worth having
        return Section("Allocation", paragraph(str(error)))
    budgets = np.array([float(f"{once * factor:.1e}") for factor in (1 / 3, 1, 3, 10, 30)])
    rows = []
    for setting in settings:
        best = plots.best_allocation(setting.law(form), ud, budgets)
        band = plots.allocation_band(setting, form, ud, budgets)
        for i, budget in enumerate(budgets):
            cells = [f"{setting.weight_decay:g}", scientific(budget, 2)]
            for name, show in (("params", short), ("epochs", _three), ("loss", _thousandths)):
                text = show(float(getattr(best, name)[i]))
                if band is not None:
                    low, high = (show(float(end)) for end in band[name][:, i])
                    text += f" ({low} to {high})"
                cells.append(text)
            rows.append(tuple(cells))
    body = paragraph(
        f"Optimal allocation of {short(ud)} unique tokens under {plots.LABELS[form]}, with 95% intervals."
    )
    body += table(("λ", "FLOPs", "parameters", "epochs", "loss"), rows)
    body += picture(
        plots.allocation(c, ud, form),
        f"Optimal size, epochs and loss at {short(ud)} unique tokens",
        "Bands hold 95% of the bootstrap refits. Where the epochs fall again, compute is better spent on size.",
    )
    return Section("Allocation", body)


def fit_quality(subject: Subject) -> Section:
    keys = [
        ("r2", "R²"),
        ("r2_multi", "R² repeated"),
        ("r2_single", "R² one epoch"),
        ("huber", "Huber sum"),
        ("aicc", "AICc"),
        ("held_out_error", "held-out error"),
    ]
    body = ""
    for setting in subject.calibration.settings:
        forms = [form for form in FORMS if form in setting.laws]
        known = [
            (key, title)
            for key, title in keys
            if any(setting.laws[form].metrics.get(key) is not None for form in forms)
        ]
        rows = []
        for form in forms:
            fitted = setting.laws[form]
            cells = [_figure(fitted.metrics.get(key), key) for key, _ in known]
            rows.append((plots.LABELS[form], *cells))
        body += heading(subject, setting)
        body += table(("law", *(title for _, title in known)), rows)
        body += picture(
            plots.fit_quality(setting),
            f"Fit quality of all forms at weight decay {setting.weight_decay:g}",
            "",
        )
    body += paragraph(
        "The held-out error, mean |ln(predicted / observed)| in (size, budget) cells left out of the fit, decides."
    )
    return Section("How well the laws fit", body)


def convergence(subject: Subject) -> Section | None:
    """How each fit ended, and which forms the runs do not determine."""
    body = ""
    for setting in subject.calibration.settings:
        rows = []
        for form in (form for form in FORMS if form in setting.laws):
            how = getattr(setting.laws[form], "convergence", None)
            if isinstance(how, dict):
                rows.append((plots.LABELS[form], *_ending(how)))
        missing = setting.method.get("not_identified")
        reasons = (
            [(plots.LABELS.get(form, str(form)), str(why)) for form, why in missing.items()]
            if isinstance(missing, dict)
            else []
        )
        if not rows and not reasons:
            continue
        body += heading(subject, setting)
        if rows:
            header = (
                "law",
                "status",
                "starts at the optimum",
                "gradient norm",
                "nearly flat along",
                "refits kept",
                "refits on a bound",
            )
            body += table(header, rows)
        if reasons:
            body += paragraph("Not identified by these runs, and left out:") + table(None, reasons)
    return Section("How the fits converged", body) if body else None


def _ending(how: dict[str, Any]) -> tuple[str, ...]:
    """Status, starts, gradient, flat directions and refits of one fit; blank where the file does not say."""
    share, starts, gradient, flat = (
        how.get(name) for name in ("share_at_optimum", "starts", "gradient_norm", "nearly_flat")
    )
    refits = how.get("refits")
    kept = bound = ""
    if isinstance(refits, dict):
        kept = f"{refits.get('kept', '')} of {refits.get('made', '')}"
        bound = _plain(refits.get("at_bound", ""))
    numeric = isinstance(share, int | float)
    return (
        str(how.get("status", "")),
        f"{share:.0%} of {starts}" if numeric else "",
        f"{gradient:.1e}" if isinstance(gradient, int | float) else "",
        ", ".join(map(str, flat)) if isinstance(flat, list) else "",
        kept,
        bound,
    )


def _reason(calibration: Calibration) -> str:
    found = getattr(calibration, "recommendation", None)
    return str(found.get("reason", "")) if isinstance(found, dict) else ""


def predictions(subject: Subject) -> Section | None:
    body = ""
    for setting in subject.calibration.settings:
        runs = subject.runs_at(setting)
        if runs is None:
            continue
        body += heading(subject, setting)
        body += picture(
            plots.predicted_observed(setting, runs),
            f"Predicted against observed loss at weight decay {setting.weight_decay:g}",
            "Points below the diagonal did worse than predicted. Points beyond the axes are drawn at their edge.",
        )
    return Section("Predicted against observed", body) if body else None


def repetition(subject: Subject) -> Section | None:
    body = ""
    for setting in subject.calibration.settings:
        runs = subject.runs_at(setting)
        if runs is None or not (runs["epochs"] > 1).any():
            continue
        body += heading(subject, setting)
        body += picture(
            plots.residual_repeats(setting, runs),
            f"Loss beyond the base law against repeats at weight decay {setting.weight_decay:g}",
            "The dashed lines share their slope. A slope above one means that each further epoch costs more than the last.",
        )
    return Section("What repetition costs", body) if body else None


def parameters(subject: Subject) -> Section:
    body = ""
    for setting in subject.calibration.settings:
        rows = []
        for form in (form for form in FORMS if form in setting.laws):
            between = parameter_intervals(setting, form) if setting.ensemble_law(form) is not None else {}
            for name in parameter_names(form):
                if (
                    form != "chinchilla"
                    and name in ("E", "A", "alpha", "B", "beta")
                    and "chinchilla" in setting.laws
                ):
                    continue  # the base law is that of the first rows
                value = f"{setting.laws[form].parameters[name]:.5g}"
                interval = f"{between[name].low:.4g} to {between[name].high:.4g}" if name in between else ""
                rows.append((plots.LABELS[form], plots.SYMBOLS[name], value, interval))
        body += heading(subject, setting)
        body += table(("law", "parameter", "value", "95% of refits"), rows)
        form = subject.form
        if form in setting.laws and setting.ensemble_law(form) is not None:
            body += picture(
                plots.parameter_clouds(setting, form),
                f"Bootstrap refits of {plots.LABELS[form]} at weight decay {setting.weight_decay:g}",
                "The cross is the fit. A long thin cloud is a combination of parameters that the runs do not pin down.",
            )
    return Section("Parameters", body)


def run_list(subject: Subject) -> Section | None:
    if subject.runs is None:
        return None
    runs = subject.runs
    rows = [
        (
            f"{decay:g}",
            str(len(here)),
            str(int((here["epochs"] <= 1).sum())),
            _span((here["params"].min(), here["params"].max())),
            _span((here["unique_tokens"].min(), here["unique_tokens"].max())),
            f"{here['epochs'].max():g}",
            f"{here['loss'].min():.3f} to {here['loss'].max():.3f}",
            scientific(float((FLOPS_PER_PARAM_TOKEN * here["params"] * here["tokens"]).sum())),
        )
        for decay, here in runs.groupby("weight_decay")
    ]
    return Section(
        "Runs",
        table(
            ("λ", "runs", "one epoch", "parameters", "unique tokens", "most epochs", "loss", "FLOPs in all"),
            rows,
        ),
    )


def method(subject: Subject) -> Section | None:
    rows = [
        (f"λ = {setting.weight_decay:g}", str(name).replace("_", " "), _plain(value))
        for setting in subject.calibration.settings
        for name, value in setting.method.items()
        if name != "not_identified"  # has a section of its own
    ]
    return Section("How it was fitted", table(None, rows)) if rows else None


SECTIONS: tuple[SectionMaker, ...] = (
    about,
    recommendation,
    fit_quality,
    convergence,
    predictions,
    repetition,
    parameters,
    run_list,
    method,
)


# -- HTML -----------------------------------------------------------------------------------------------------------------


def page(title: str, sections: Iterable[Section]) -> str:
    """Sections as one page with a table of contents."""
    parts = list(sections)
    contents = "".join(f'<li><a href="#s{i}">{escape(part.title)}</a></li>' for i, part in enumerate(parts))
    body = "".join(
        f'<section id="s{i}"><h2>{escape(part.title)}</h2>{part.body}</section>'
        for i, part in enumerate(parts)
    )
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta name="color-scheme" content="light dark"><title>{escape(title)}</title><style>{_CSS}</style></head>'
        f"<body><main><h1>{escape(title)}</h1><nav><ul>{contents}</ul></nav>{body}</main></body></html>\n"
    )


def paragraph(text: str) -> str:
    return f"<p>{escape(text)}</p>"


def heading(subject: Subject, setting: Setting) -> str:
    """The weight decay as a small heading, where there are several."""
    return f"<h3>λ = {setting.weight_decay:g}</h3>" if len(subject.calibration.settings) > 1 else ""


def table(header: Sequence[str] | None, rows: Iterable[Sequence[str]]) -> str:
    head, kind = "", ' class="plain"'
    if header is not None:
        kind, titles = "", "".join(f'<th scope="col">{escape(cell)}</th>' for cell in header)
        head = f"<thead><tr>{titles}</tr></thead>"
    body = ""
    for first, *others in rows:
        cells = "".join(f"<td>{escape(cell)}</td>" for cell in others)
        body += f'<tr><th scope="row">{escape(first)}</th>{cells}</tr>'
    return f'<div class="scroll"><table{kind}>{head}<tbody>{body}</tbody></table></div>'


def picture(figure: Figure, label: str, caption: str) -> str:
    """A figure as inline SVG in the page's own ink."""
    import matplotlib

    buffer = io.StringIO()
    # A salt of its own keeps the ids of one picture apart from those of the others, and the page the same every time.
    with matplotlib.rc_context({"svg.hashsalt": label, "svg.fonttype": "none"}):
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    svg = buffer.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'<svg ([^>]*?)height="[^"]*"([^>]*?)width="[^"]*"', r"<svg \1\2", svg, count=1)
    width = float(re.search(r'viewBox="0 0 ([\d.]+)', svg)[1]) * 96 / 72  # type: ignore[index]
    svg = svg.replace(plots.INK, "currentColor")
    svg = svg.replace(
        "<svg ", f'<svg role="img" aria-label="{escape(label)}" style="max-width:{width:.0f}px" ', 1
    )
    below = f"<figcaption>{escape(caption)}</figcaption>" if caption else ""
    return f'<figure><div class="scroll">{svg}</div>{below}</figure>'


_CSS = """
:root{--ink:#1d1f21;--paper:#fff;--soft:#f2f3f5;--line:#d6d9dd;--link:#005a9c}
@media (prefers-color-scheme:dark){:root{--ink:#e4e6e8;--paper:#16181b;--soft:#212429;--line:#3a3f45;--link:#7cc0ff}}
*{box-sizing:border-box}
body{margin:0;background:var(--paper);color:var(--ink);font:16px/1.55 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif}
main{max-width:68rem;margin:0 auto;padding:1rem}
h1{font-size:1.6rem;line-height:1.25;overflow-wrap:anywhere}
h2{font-size:1.25rem;margin:2.2rem 0 .6rem;border-bottom:1px solid var(--line);padding-bottom:.2rem}
h3{font-size:1rem;margin:1.4rem 0 .4rem}
a{color:var(--link)} nav ul{list-style:none;padding:0;display:flex;flex-wrap:wrap;gap:.3rem 1rem}
.scroll{overflow-x:auto;margin:.6rem 0} table{border-collapse:collapse;font-size:.9rem;font-variant-numeric:tabular-nums}
th,td{padding:.3rem .5rem;border-bottom:1px solid var(--line);text-align:right;white-space:nowrap;vertical-align:top}
thead th{background:var(--soft);font-weight:600} tbody th{text-align:left;font-weight:500} th:first-child{text-align:left}
table.plain td{text-align:left;white-space:normal;overflow-wrap:anywhere}
figure{margin:1rem 0} figure svg{width:100%;min-width:40rem;height:auto;display:block}
figcaption{font-size:.9rem;opacity:.85;max-width:46rem}
svg text{font-family:system-ui,-apple-system,"Segoe UI",Roboto,sans-serif!important}
@media print{nav{display:none} section{break-inside:avoid-page}}
""".strip().replace("\n", "")


def _span(ends: Sequence[float]) -> str:
    low, high = (short(float(end)) for end in ends)
    return low if low == high else f"{low} to {high}"


def _three(value: float) -> str:
    return f"{value:.3g}"


def _thousandths(value: float) -> str:
    return f"{value:.3f}"


def _figure(value: float | None, key: str) -> str:
    if value is None:
        return "-"
    return f"{value:.4f}" if key.startswith("r2") else f"{value:.1f}" if key == "aicc" else f"{value:.3g}"


def _plain(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name}: {_plain(inner)}" for name, inner in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(_plain(inner) for inner in value)
    return f"{value:g}" if isinstance(value, float) else str(value)
