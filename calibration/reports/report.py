"""The report of a calibration: what it recommends, how well its laws fit, and how far to trust them.

A report is a list of sections; each is made by a function from a `Subject` (the calibration, and the runs if
they are given) to a `Section`, or to None where there is nothing to say. A study adds its own by appending to
that list. `document` makes them a page.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from calibration.fitting.evaluate.summary import parameter_intervals
from calibration.reports import evidence_plots, fit_plots
from calibration.reports.document import Section, page, paragraph, picture, table
from planner.calibration import Calibration, Setting
from planner.inputs import InvalidInput, count, scientific, short
from planner.laws import AVERAGE, BASE_FORM, check_form, every_form, parameter_names, repetition_parameters
from planner.show.palette import law_label, symbol
from planner.solve import FLOPS_PER_PARAM_TOKEN


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
    def planned(self) -> str:
        """What a plan relies on: where forms are averaged that is their average."""
        return self.law or self.calibration.form(None)

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


SectionMaker = Callable[[Subject], Section | None]
Opening = Callable[[Subject], list[str]]


def report(
    calibration: Calibration,
    runs: pd.DataFrame | None = None,
    *,
    ud: Any = None,
    law: str | None = None,
    sections: Sequence[SectionMaker] | None = None,
    opening: Opening | None = None,
    title: str = "",
    progress: Callable[[str, float], None] | None = None,
) -> str:
    """The page as HTML text, under the calibration's title unless it has one of its own."""
    if law is not None:
        check_form(law)
        calibration.settings[0].law(law)
    subject = Subject(calibration, runs, None if ud is None else count(ud, "ud"), law)
    if runs is not None and all(subject.runs_at(setting) is None for setting in calibration.settings):
        known = ", ".join(f"{decay:g}" for decay in calibration.weight_decays)
        raise InvalidInput(
            f"none of the runs has a weight decay of calibration {calibration.name} ({known}); "
            "give the runs it was fitted on."
        )
    makers = SECTIONS if sections is None else sections
    found = []
    for done, make in enumerate(makers):
        if progress is not None:
            progress(getattr(make, "__name__", "section").replace("_", " "), done / len(makers))
        if (made := make(subject)) is not None:
            found.append(made)
    return page(title or calibration.title or calibration.name, found, (opening or verdict)(subject))


# -- what it comes to ---------------------------------------------------------------------------------------


def verdict(subject: Subject) -> list[str]:
    """Three sentences: which law, what it says for a corpus of the middle, and how far to trust it."""
    return [chosen_law(subject), example(subject), trust(subject)]


def chosen_law(subject: Subject) -> str:
    c = subject.calibration
    if subject.form != c.default_law:
        return f"This report is about {law_label(subject.form)}; {law_label(c.default_law)} is recommended."
    settings = [f"{decay:g}" for decay in c.weight_decays]
    where = f"at weight decay {' and '.join(settings)}" if len(settings) < 4 else "at each weight decay"
    if subject.planned == AVERAGE:
        most, best = f"of which {law_label(c.default_law)} counts most", law_label(AVERAGE)
        return f"Of the laws fitted {where}, plan with the {best}, {most}."
    return f"Of the laws fitted {where}, plan with {law_label(c.default_law)}."


def example(subject: Subject) -> str:
    """The plan for three times the compute of one epoch, at the best weight decay."""
    form, ud = subject.planned, subject.unique_tokens
    settings = [setting for setting in subject.calibration.settings if setting.has(form)]
    try:
        once = fit_plots.one_epoch_flops(settings[0].law(form), ud)
    except InvalidInput as error:
        return f"It gives no plan: {error}"
    flops = float(f"{3 * once:.1e}")
    plans = [
        (setting, fit_plots.best_allocation(setting.law(form), ud, np.array([flops]))) for setting in settings
    ]
    setting, best = min(plans, key=lambda one: float(one[1].loss[0]))
    return (
        f"For {short(ud)} unique tokens and {scientific(flops, 2)} FLOPs it trains "
        f"{short(float(best.params[0]))} parameters for {best.epochs[0]:.3g} epochs at weight decay "
        f"{setting.weight_decay:g}, to a loss of {best.loss[0]:.3f}."
    )


def trust(subject: Subject) -> str:
    """How far the law is off where it was not fitted, and where its runs end."""
    settings = [setting for setting in subject.calibration.settings if subject.form in setting.laws]
    errors = [setting.laws[subject.form].metrics.get("held_out_error") for setting in settings]
    known = [error for error in errors if error is not None]
    largest = max(setting.fitted_on.params[1] for setting in settings)
    most = max(setting.fitted_on.epochs[1] for setting in settings)
    beyond = f"its runs end at {short(largest)} parameters and {most:g} epochs; beyond, it extrapolates."
    if not known:
        return f"How far it is off on runs that it was not fitted to is not known; {beyond}"
    return f"On runs left out of the fit it is off by {max(known):.1%} of the loss; {beyond}"


# -- the sections --------------------------------------------------------------------------------------


def forms_of(setting: Setting) -> list[str]:
    """The laws of a setting, in the order in which laws are always listed."""
    return [form for form in every_form() if form in setting.laws]


def heading(subject: Subject, setting: Setting) -> str:
    """The weight decay as a small heading, where there are several."""
    return f"<h3>λ = {setting.weight_decay:g}</h3>" if len(subject.calibration.settings) > 1 else ""


def about(subject: Subject) -> Section:
    c = subject.calibration
    fields = {
        "calibration": c.name,
        "corpus": c.corpus,
        "model family": c.model_family,
        "source": c.source,
        "recommended law": law_label(c.default_law),
        "why": reason(c),
    }
    for setting in c.settings:
        on = setting.fitted_on
        fields[f"fitted at λ = {setting.weight_decay:g}"] = (
            f"{f'{on.runs} runs, ' if on.runs else ''}{_span(on.params)} parameters, "
            f"{_span(on.unique_tokens)} unique tokens, {on.epochs[0]:g} to {on.epochs[1]:g} epochs"
        )
    return Section("About", table(None, [(name, value) for name, value in fields.items() if value]))


def recommendation(subject: Subject) -> Section:
    """What the laws say for one corpus over a range of compute, with the interval."""
    c, ud, form = subject.calibration, subject.unique_tokens, subject.form
    settings = [setting for setting in c.settings if form in setting.laws]
    try:
        once = fit_plots.one_epoch_flops(settings[0].law(form), ud)
    except InvalidInput as error:  # the rest of the page is still worth having
        return Section("Allocation", paragraph(str(error)))
    budgets = np.array([float(f"{once * factor:.1e}") for factor in (1 / 3, 1, 3, 10, 30)])
    rows = []
    for setting in settings:
        best = fit_plots.best_allocation(setting.law(form), ud, budgets)
        band = fit_plots.allocation_band(setting, form, ud, budgets)
        for i, budget in enumerate(budgets):
            cells = [f"{setting.weight_decay:g}", scientific(budget, 2)]
            for name, show in (("params", short), ("epochs", "{:.3g}".format), ("loss", "{:.3f}".format)):
                text = show(float(getattr(best, name)[i]))
                if band is not None:
                    low, high = (show(float(end)) for end in band[name][:, i])
                    text += f" ({low} to {high})"
                cells.append(text)
            rows.append(tuple(cells))
    body = paragraph(
        f"Optimal allocation of {short(ud)} unique tokens under {law_label(form)}, with 95% intervals."
    )
    body += table(("λ", "FLOPs", "parameters", "epochs", "loss"), rows)
    body += picture(
        fit_plots.allocation(c, ud, form),
        f"Optimal size, epochs and loss at {short(ud)} unique tokens",
        "Bands hold 95% of the draws. Where the epochs fall again, compute is better spent on size.",
    )
    return Section("Allocation", body)


def fit_quality(subject: Subject) -> Section:
    body = ""
    for setting in subject.calibration.settings:
        metrics = {form: setting.laws[form].metrics for form in forms_of(setting)}
        known = [key for key in _METRICS if any(one.get(key) is not None for one in metrics.values())]
        rows = []
        for form, values in metrics.items():
            cells = ((values.get(key), _METRICS[key][1]) for key in known)
            rows.append((law_label(form), *("-" if v is None else format(v, style) for v, style in cells)))
        body += heading(subject, setting)
        body += table(("law", *(_METRICS[key][0] for key in known)), rows)
        drawn = [key for key in known if key in ("huber", "r2_multi", "held_out_error")]
        if drawn:
            label = f"Fit quality of all forms at weight decay {setting.weight_decay:g}"
            body += picture(fit_plots.fit_quality([("", setting)], drawn), label, "")
    body += paragraph(
        "The held-out error, mean |ln(predicted / observed)| in (size, budget) cells left out of the fit, "
        "decides."
    )
    return Section("How well the laws fit", body)


_METRICS = {
    "r2": ("R²", ".4f"),
    "r2_multi": ("R² repeated", ".4f"),
    "r2_single": ("R² one epoch", ".4f"),
    "huber": ("Huber sum", ".3g"),
    "aicc": ("AICc", ".1f"),
    "held_out_error": ("held-out error", ".3g"),
}


def convergence(subject: Subject) -> Section | None:
    """How each fit ended, and which forms the runs do not determine."""
    header = ("law", "status", "starts at the optimum", "gradient norm", "nearly flat along", "refits kept")
    body = ""
    for setting in subject.calibration.settings:
        endings = {form: getattr(setting.laws[form], "convergence", None) for form in forms_of(setting)}
        rows = [(law_label(f), *_ending(how)) for f, how in endings.items() if isinstance(how, dict)]
        missing = setting.method.get("not_identified")
        reasons = missing.items() if isinstance(missing, dict) else ()
        left_out = [(law_label(str(form)), str(why)) for form, why in reasons]
        if rows or left_out:
            body += heading(subject, setting)
        if rows:
            body += table((*header, "refits on a bound"), rows)
        if left_out:
            body += paragraph("Not identified by these runs, and left out:") + table(None, left_out)
    return Section("How the fits converged", body) if body else None


def _ending(how: dict[str, Any]) -> tuple[str, ...]:
    """Status, starts, gradient, flat directions and refits of one fit; blank where the file does not say."""
    share, gradient, flat, refits = (
        how.get(name) for name in ("share_at_optimum", "gradient_norm", "nearly_flat", "refits")
    )
    known = refits if isinstance(refits, dict) else None
    return (
        str(how.get("status", "")),
        f"{share:.0%} of {how.get('starts')}" if isinstance(share, int | float) else "",
        f"{gradient:.1e}" if isinstance(gradient, int | float) else "",
        ", ".join(map(str, flat)) if isinstance(flat, list) else "",
        "" if known is None else f"{known.get('kept', '')} of {known.get('made', '')}",
        "" if known is None else _plain(known.get("at_bound", "")),
    )


def reason(calibration: Calibration) -> str:
    found = getattr(calibration, "recommendation", None)
    return str(found.get("reason", "")) if isinstance(found, dict) else ""


def predictions(subject: Subject) -> Section | None:
    return _of_runs(
        subject,
        "Predicted against observed",
        fit_plots.predicted_observed,
        "Predicted against observed loss",
        "Points below the diagonal did worse than predicted. Points beyond the axes are at their edge.",
    )


def repetition(subject: Subject) -> Section | None:
    return _of_runs(
        subject,
        "What repetition costs",
        evidence_plots.residuals,
        "Loss beyond the base law against repeats",
        "The dashed lines share their slope. Above one, each further epoch costs more than the last.",
    )


def _of_runs(
    subject: Subject, title: str, draw: Callable[..., Figure], label: str, caption: str
) -> Section | None:
    """A picture for each weight decay that has runs."""
    body = ""
    for setting in subject.calibration.settings:
        runs = subject.runs_at(setting)
        if runs is None:
            continue
        try:
            shown = picture(draw(setting, runs), f"{label} at weight decay {setting.weight_decay:g}", caption)
        except InvalidInput as error:
            shown = paragraph(f"Nothing to draw: {error}")
        body += heading(subject, setting) + shown
    return Section(title, body) if body else None


def parameters(subject: Subject) -> Section:
    body = ""
    for setting in subject.calibration.settings:
        rows = [row for form in forms_of(setting) for row in _values(setting, form)]
        body += heading(subject, setting)
        body += table(("law", "parameter", "value", "95% of draws"), rows)
        form = subject.form
        if form in setting.laws and setting.law_draws(form) is not None:
            body += picture(
                fit_plots.parameter_clouds(setting, form),
                f"Draws of {law_label(form)} at weight decay {setting.weight_decay:g}",
                "The cross is the fit. A long thin cloud is a combination of parameters that the runs do not "
                "pin down.",
            )
    return Section("Parameters", body)


def _values(setting: Setting, form: str) -> Iterator[tuple[str, str, str, str]]:
    """Law, parameter, value and interval; a base law that is listed already is not listed again."""
    between = parameter_intervals(setting, form) if setting.law_draws(form) is not None else {}
    listed = form != BASE_FORM and BASE_FORM in setting.laws
    for name in repetition_parameters(form) if listed else parameter_names(form):
        value = f"{setting.laws[form].parameters[name]:.5g}"
        interval = f"{between[name].low:.4g} to {between[name].high:.4g}" if name in between else ""
        yield law_label(form), symbol(name), value, interval


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
    names = ("λ", "runs", "one epoch", "parameters", "unique tokens", "most epochs", "loss", "FLOPs in all")
    return Section("Runs", table(names, rows))


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
)
SECTIONS += (parameters, run_list, method)


# -- cells --------------------------------------------------------------------------------------------


def _span(ends: Sequence[float]) -> str:
    low, high = (short(float(end)) for end in ends)
    return low if low == high else f"{low} to {high}"


def _plain(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name}: {_plain(inner)}" for name, inner in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(_plain(inner) for inner in value)
    return f"{value:g}" if isinstance(value, float) else str(value)
