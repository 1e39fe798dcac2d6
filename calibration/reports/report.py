"""The report of a calibration: what it recommends, how well its laws fit, and how far to trust them.

A report is a list of sections; each is made by a function from a `Subject` (the calibration, and the runs if
they are given) to a `Section`, or to None where there is nothing to say. A study adds its own by appending to
that list. `document` makes them a page.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from calibration.fitting.evaluate.summary import example_question, parameter_intervals
from calibration.fitting.runs.tables import by_weight_decay
from calibration.reports import evidence_plots, fit_plots
from calibration.reports.document import Section, page, paragraph, picture, table
from planner.calibration import Calibration, Setting
from planner.inputs import InvalidInput, compute, count, scientific, short
from planner.laws import AVERAGE, BASE_FORM, check_form, every_form, parameter_names, repetition_parameters
from planner.plans import plan
from planner.results import Plan
from planner.show.palette import law_label, symbol
from planner.solve import FLOPS_PER_PARAM_TOKEN


@dataclass(frozen=True)
class Subject:
    """What a report is about."""

    calibration: Calibration
    runs: pd.DataFrame | None = None
    ud: float | None = None  # the question that it is shown with; by default the runs' largest budget
    flops: float | None = None
    law: str | None = None

    @property
    def form(self) -> str:
        return self.law or self.calibration.default_law

    @property
    def planned(self) -> str:
        """What a plan relies on: where forms are averaged that is their average."""
        return self.law or self.calibration.form(None)

    @property
    def question(self) -> tuple[float, float]:
        """Unique tokens and compute of the plan that it is shown with."""
        ud, flops = example_question(self.calibration)
        return self.ud or ud, self.flops or flops

    @cached_property
    def plan(self) -> Plan | InvalidInput:
        """What a plan says to that question, or why it says nothing."""
        return self.plan_for(self.question[1])

    def plan_for(self, flops: float) -> Plan | InvalidInput:
        try:
            return plan(self.question[0], flops, calibration=self.calibration, law=self.law)
        except InvalidInput as error:
            return error

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
    flops: Any = None,
    law: str | None = None,
    sections: Sequence[SectionMaker] | None = None,
    opening: Opening | None = None,
    warnings: Sequence[str] = (),
    title: str = "",
    progress: Callable[[str, float], None] | None = None,
) -> str:
    """The page as HTML text, under the calibration's title unless it has one of its own. `ud` and `flops` are
    the question that it is shown with, `warnings` what else to be careful about.
    """
    if law is not None:
        check_form(law)
        calibration.settings[0].law(law)
    asked = None if ud is None else count(ud, "ud"), None if flops is None else compute(flops, "flops")
    subject = Subject(calibration, runs, *asked, law)
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
    title = title or calibration.title or calibration.name
    return page(title, found, (opening or verdict)(subject), [*warnings, *careful(subject)])


# -- what it comes to ---------------------------------------------------------------------------------------


def verdict(subject: Subject) -> list[str]:
    """Which law, what it says for the largest budget of the runs, and how far to trust it."""
    return [chosen_law(subject), example(subject), trust(subject)]


def recommended(calibration: Calibration) -> str:
    """What plans use: one law, or the average of those that count."""
    if calibration.form(None) != AVERAGE:
        return law_label(calibration.default_law)
    weights = sorted(calibration.settings[0].law_weights.items(), key=lambda item: -item[1])
    if len(weights) == 1:
        return law_label(weights[0][0])
    shown = ", ".join(f"{law_label(form)} {weight:.0%}" for form, weight in weights[:4])
    more = f" and {len(weights) - 4} more" if len(weights) > 4 else ""
    return f"the average of {len(weights)} forms ({shown}{more})"


def chosen_law(subject: Subject) -> str:
    c = subject.calibration
    if subject.planned != c.form(None):
        return f"This report is about {law_label(subject.planned)}; {recommended(c)} is recommended."
    settings = [f"{decay:g}" for decay in c.weight_decays]
    where = f"at weight decay {' and '.join(settings)}" if len(settings) < 4 else "at each weight decay"
    return f"Of the laws fitted {where}, plan with {recommended(c)}."


def example(subject: Subject) -> str:
    """The plan for the largest budget of the runs, or for the one that was asked for."""
    (ud, flops), found = subject.question, subject.plan
    if isinstance(found, InvalidInput):
        return f"For {short(ud)} unique tokens and {scientific(flops)} FLOPs it gives no plan: {found}"
    within = (found.intervals or {}).get("loss")
    between = "" if within is None else f" (95%: {within.low:.3f} to {within.high:.3f})"
    said = f"{found.verdict[:1].lower()}{found.verdict[1:]}"
    return (
        f"For {short(ud)} unique tokens and {scientific(flops)} FLOPs: {said} "
        f"That is expected to reach a loss of {found.loss:.3f}{between}."
    )


def trust(subject: Subject) -> str:
    """How far the law is off where it was not fitted, and where its runs end."""
    settings = [setting for setting in subject.calibration.settings if setting.has(subject.planned)]
    errors = [error for setting in settings if (error := _held_out(setting, subject.planned)) is not None]
    largest = max(setting.fitted_on.params[1] for setting in settings)
    most = max(setting.fitted_on.epochs[1] for setting in settings)
    beyond = f"its runs end at {short(largest)} parameters and {most:g} epochs; beyond, it extrapolates."
    if not errors:
        return f"How far it is off on runs that it was not fitted to is not known; {beyond}"
    return f"On runs left out of the fit it is off by {max(errors):.1%} of the loss; {beyond}"


def _held_out(setting: Setting, form: str) -> float | None:
    """The error on runs left out of a form's fit; of an average that of its forms, by their weights."""
    weights = setting.law_weights if form == AVERAGE else {form: 1.0}
    known = [(setting.laws[one].metrics.get("held_out_error"), weight) for one, weight in weights.items()]
    errors = [(error, weight) for error, weight in known if error is not None]
    return sum(e * w for e, w in errors) / sum(w for _, w in errors) if errors else None


_OF_SHAPES = ("vocabulary_unknown", "no_shape", "absurd_shape")  # of which a report says nothing


def careful(subject: Subject) -> list[str]:
    """What to be careful about, each once: of this plan, of the fit and of its runs."""
    c = subject.calibration
    found = [] if isinstance(subject.plan, InvalidInput) else subject.plan.warnings
    said = [str(remark) for remark in found if remark.code not in _OF_SHAPES]
    common = set.intersection(*(set(setting.warnings) for setting in c.settings))
    for setting in c.settings:
        at = f"At weight decay {setting.weight_decay:g}: "
        of_fit = [text for text in setting.warnings if text not in said]
        said += [text if text in common else at + text for text in of_fit]
    left_out = getattr(c, "left_out", None)
    for decay, why in left_out.items() if isinstance(left_out, dict) else ():
        said.append(f"Weight decay {decay} is left out, its base law is not identified: {why}.")
    return [*said, *(f"{text}." for text in other_runs(c, subject.runs))]


def other_runs(calibration: Calibration, runs: pd.DataFrame | None) -> list[str]:
    """For each weight decay at which the law was fitted to another number of runs than are given."""
    said: list[str] = []
    if runs is None:
        return said
    for setting in calibration.settings:
        given = int(np.isclose(runs["weight_decay"], setting.weight_decay, rtol=1e-9, atol=1e-12).sum())
        fitted = setting.fitted_on.runs
        if fitted is not None and given not in (0, fitted):
            at = f"{given} runs are given at weight decay {setting.weight_decay:g}"
            said.append(f"{at}, the law was fitted to {fitted}")
    return said


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
        "recommended": recommended(c),
        "why": "" if c.form(None) == AVERAGE else reason(c),
    }
    for setting in c.settings:
        on = setting.fitted_on
        fields[f"fitted at λ = {setting.weight_decay:g}"] = (
            f"{f'{on.runs} runs, ' if on.runs else ''}{_span(on.params)} parameters, "
            f"{_span(on.unique_tokens)} unique tokens, {on.epochs[0]:g} to {on.epochs[1]:g} epochs"
        )
    return Section("About", table(None, [(name, value) for name, value in fields.items() if value]))


def allocation(subject: Subject) -> Section:
    """What to train with less and with more compute, and why: the optimum of each weight decay."""
    c, (ud, flops), form = subject.calibration, subject.question, subject.planned
    intro = paragraph(f"What to train on {short(ud)} unique tokens, with 95% intervals:")
    rows = []
    for factor in (1 / 30, 1 / 10, 1 / 3, 1, 3):
        budget = float(f"{flops * factor:.2g}") if factor != 1 else flops
        found = subject.plan if factor == 1 else subject.plan_for(budget)
        if not isinstance(found, InvalidInput):
            rows.append(_plan_row(found, scientific(budget) + " (asked)" * (factor == 1)))
    body = intro + table(("FLOPs", "parameters", "epochs", "λ", "loss"), rows) if rows else ""
    try:
        drawn = fit_plots.allocation(c, ud, form, flops)
    except InvalidInput as error:  # the rest of the page is still worth having
        return Section("Allocation", body + paragraph(str(error)))
    body += picture(
        drawn,
        f"Optimal size, epochs and loss at {short(ud)} unique tokens",
        f"The optimum under {'the ' * (form == AVERAGE)}{law_label(form)} when all compute is spent and "
        f"epochs may be fractions; bands hold 95% of the draws. The dashed line is the compute asked about. "
        f"Where the epochs fall again, compute is better spent on size.",
    )
    return Section("Allocation", body)


def _plan_row(found: Plan, budget: str) -> tuple[str, ...]:
    """A plan as cells: what to train, each with its interval."""
    cells = []
    for name, show in (("params", short), ("epochs", "{:.3g}".format), ("loss", "{:.3f}".format)):
        within = (found.intervals or {}).get(name)
        between = "" if within is None else f" ({show(within.low)} to {show(within.high)})"
        cells.append(show(getattr(found, name)) + between)
    return budget, *cells[:2], f"{found.weight_decay:g}", cells[2]


def fit_quality(subject: Subject) -> Section:
    """How each form fits, and how much it counts: figures that differ too little for bars."""
    body = ""
    for setting in subject.calibration.settings:
        metrics = {form: setting.laws[form].metrics for form in forms_of(setting)}
        known = [key for key in _METRICS if any(one.get(key) is not None for one in metrics.values())]
        rows = []
        for form, values in metrics.items():
            cells = [
                "-" if values.get(key) is None else format(values[key], _METRICS[key][1]) for key in known
            ]
            rows.append((law_label(form), *cells, _counts(subject.calibration, setting, form)))
        body += heading(subject, setting)
        body += table(("law", *(_METRICS[key][0] for key in known), "plans use"), rows)
    body += paragraph(
        "The held-out error is the mean |ln(predicted / observed)| in (size, budget) cells that were left "
        "out of the fit."
    )
    return Section("How well the laws fit", body)


def _counts(calibration: Calibration, setting: Setting, form: str) -> str:
    """How much plans rely on a form."""
    if calibration.form(None) == AVERAGE:
        return f"{setting.law_weights[form]:.0%}" if form in setting.law_weights else ""
    return "this one" if form == calibration.default_law else ""


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
        partial(fit_plots.predicted_observed, law=subject.planned),
        f"Predicted against observed loss under {law_label(subject.planned)}",
        "Points above the diagonal did worse than predicted. Points beyond the axes are at their edge.",
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
    flops = FLOPS_PER_PARAM_TOKEN * runs["params"] * runs["tokens"]
    totals = flops.groupby(runs["weight_decay"]).sum()
    rows = [[*row, scientific(float(all_))] for row, all_ in zip(by_weight_decay(runs), totals, strict=True)]
    names = ("λ", "runs", "one epoch", "parameters", "unique tokens", "most epochs", "loss", "FLOPs in all")
    return Section("Runs", table(names, rows))


def method(subject: Subject) -> Section | None:
    rows = [
        (f"λ = {setting.weight_decay:g}", str(name).replace("_", " "), _plain(value))
        for setting in subject.calibration.settings
        for name, value in setting.method.items()
        if name != "not_identified" and _plain(value)  # that has a section of its own
    ]
    return Section("How it was fitted", table(None, rows)) if rows else None


SECTIONS: tuple[SectionMaker, ...] = (
    about,
    allocation,
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
