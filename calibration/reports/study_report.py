"""The part of a report that only a study has: what was trained, what each law came to, and the crossover."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from calibration.fitting.runs.tables import Origin
from calibration.reports import study_plots
from calibration.reports.document import Section, paragraph, picture, table
from calibration.reports.report import SECTIONS, Opening, SectionMaker, Subject, chosen_law, example, verdict
from calibration.studies.directory import GRID, VALIDATION, StudyDirectory
from calibration.studies.provenance import provenance_mismatch
from calibration.studies.verdict import (
    CrossoverFound,
    Standing,
    Trial,
    Verdict,
    best_sentence,
    blank_or,
    by_regret,
    crossover_sentence,
    crossover_table,
    noise_sentence,
    read_verdict,
    standing_rows,
    trial_rows,
    trial_title,
)
from planner.calibration import Calibration
from planner.inputs import InvalidInput, duration, scientific, short
from planner.show.palette import law_label
from trainer.run.result import RunResult

_SHOWN = 12


def sections(directory: StudyDirectory, **evaluated: Any) -> list[SectionMaker]:
    """The proof first, then the usual sections. `evaluated` are settings of `planner evaluate`."""
    results = {part: directory.results(part) for part in (GRID, VALIDATION)}
    found, facts = read_verdict(directory) or (Verdict((), (), ()), {})

    def what_was_trained(subject: Subject) -> Section:
        return _trained(directory, results)

    def prescriptive_validation(subject: Subject) -> Section | None:
        return _prescriptive(found, facts) if found.trials else None

    def weight_decay_crossover(subject: Subject) -> Section | None:
        return _crossovers(found.crossovers) if found.crossovers else None

    def downstream(subject: Subject) -> Section | None:
        return _downstream(directory, found, evaluated)

    about, *others = SECTIONS
    return [about, what_was_trained, prescriptive_validation, weight_decay_crossover, downstream, *others]


def opening(directory: StudyDirectory) -> Opening:
    """What a study's report begins with: the law, its plan, and how it did when it was tried."""
    found, _ = read_verdict(directory) or (Verdict((), (), ()), {})
    standings = [standing for standing in found.standings if standing.regret is not None]

    def sentences(subject: Subject) -> list[str]:
        if not standings:
            return verdict(subject)
        return [chosen_law(subject), example(subject), _outcome(standings)]

    return sentences


def mismatch(directory: StudyDirectory, calibration: Calibration, origin: Origin) -> list[str]:
    """A warning where the laws are of another study."""
    differing = provenance_mismatch(calibration, origin.vocab_size, directory)
    if not differing:
        return []
    return [
        f"The laws below are not of this study, whose corpus is {origin.corpus}: calibration "
        f"{calibration.name} was fitted to {differing}, so they may not hold here."
    ]


def _outcome(standings: Sequence[Standing]) -> str:
    best = min(standings, key=by_regret)
    behind = [s for s in standings if s.weight_decay == best.weight_decay and s.beyond_noise]
    names = ", ".join(law_label(s.law) for s in behind)
    others = f"{names} did worse beyond noise" if behind else "no law did worse beyond noise"
    return (
        f"Trained as each law prescribes, {law_label(best.law)} came closest to the best run of the study, "
        f"with a mean regret of {best.regret:.3f} nats at weight decay {best.weight_decay:g}; {others}."
    )


# -- what was trained ---------------------------------------------------------------------------------------


def _trained(directory: StudyDirectory, results: dict[str, list[RunResult]]) -> Section:
    names = {GRID: "grid", VALIDATION: "prescribed by laws"}
    rows = []
    for part, found in results.items():
        begun = len(list((directory.path / part).glob("*/config.json")))
        flops = sum(result.flops for result in found)
        rows.append(
            (
                names[part],
                str(len(found)),
                str(max(begun - len(found), 0)),
                ", ".join(map(str, sorted({result.seed for result in found}))),
                scientific(flops),
                duration(sum(result.seconds for result in found)),
                str(sum(result.starts > 1 for result in found)),
            )
        )
    body = table(("runs", "finished", "unfinished", "seeds", "FLOPs", "training time", "interrupted"), rows)
    everything = [result for found in results.values() for result in found]
    machines: dict[str, list[RunResult]] = {}
    for result in everything:
        machines.setdefault(_machine(result), []).append(result)
    body += table(
        ("trained on", "runs", "training time"),
        [
            (name, str(len(found)), duration(sum(result.seconds for result in found)))
            for name, found in machines.items()
        ],
    )
    return Section(
        "What was trained", body + _failures_table(directory, {result.run for result in everything})
    )


def _failures_table(directory: StudyDirectory, finished: set[str]) -> str:
    """Runs that failed on the way: how often, and the last reason."""
    try:
        lines = (directory.path / "failures.jsonl").read_text(encoding="utf-8").splitlines()
    except OSError:
        return ""
    reasons: dict[str, list[str]] = {}
    for line in lines:
        with suppress(ValueError, KeyError, TypeError):  # the end of a line that a crash cut off
            entry = json.loads(line)
            reasons.setdefault(str(entry["run"]), []).append(str(entry["reason"]))
    if not reasons:
        return ""
    rows = [
        (name, str(len(why)), "finished" if name in finished else "not finished", why[-1])
        for name, why in list(reasons.items())[:_SHOWN]
    ]
    body = paragraph("What went wrong on the way; a run that is finished was tried again with success.")
    body += table(("run", "attempts that failed", "now", "last reason"), rows)
    if len(reasons) > _SHOWN:
        body += paragraph(f"And {len(reasons) - _SHOWN} more runs, in failures.jsonl.")
    return body


def _machine(result: RunResult) -> str:
    how = {"device": "", "dtype": "", "torch": "?", **result.execution}
    name, threads = how.get("name") or how["device"] or "unknown", ""
    if how["device"] == "cpu" and "threads" in how:
        threads = f", {how['threads']} thread{'s' * (how['threads'] != 1)}"
    return f"{name} ({how['device']}{threads}, {how['dtype']}, torch {how['torch']})"


# -- prescriptive validation -------------------------------------------------------------------------------


def _prescriptive(verdict: Verdict, facts: dict[str, Any]) -> Section:
    body = paragraph(
        f"Each law of calibration {facts.get('calibration')} was asked how to spend a budget, and what it "
        "said was trained at equal compute. Regret is the mean loss over seeds minus the lowest mean loss of "
        "anything in the study that was allowed there. A law is behind beyond noise where the 95% interval "
        "of its difference to the best law, by the scatter of both over their seeds and with allowance for "
        "the number of laws, does not hold zero."
    )
    body += _law_table(standing_rows(verdict))
    if any(s.regret is not None for s in verdict.standings):
        body += picture(
            study_plots.regret(verdict),
            "Mean regret of what each law prescribed",
            "Bars: mean over the budgets, with one standard error by seed noise. Points: the budgets. Zero "
            "is the best configuration that was trained.",
        )
    for trial in verdict.trials:
        body += _trial(trial)
    return Section("Which law prescribes best", body)


def _trial(trial: Trial) -> str:
    body = f"<h3>{trial_title(trial)}</h3>" + _law_table(trial_rows(trial))
    missing = [(law_label(tried.law), tried.reason) for tried in trial.laws if tried.reason]
    if missing:
        body += paragraph("Not trained:") + table(None, missing)
    if trial.best is not None:
        body += paragraph(f"{_sentence(best_sentence(trial.best))} {_sentence(noise_sentence(trial))}")
    return body


def _law_table(rows: Sequence[dict[str, str]]) -> str:
    """Rows that name their columns, of which the first is a law; nothing where there are none."""
    cells = [(law_label(law), *others) for law, *others in (row.values() for row in rows)]
    return table(tuple(rows[0]), cells) if rows else ""


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


# -- crossover ---------------------------------------------------------------------------------------------


def _crossovers(found: Sequence[CrossoverFound]) -> Section:
    body = paragraph(
        "Each weight decay was given its own optimum at multiples of the compute at which the law says that "
        "they swap places. The observed crossover is where the difference of the mean losses changes its "
        "sign; its interval comes from drawing the seeds again."
    )
    drawn = [one for one in found if any(budget.difference is not None for budget in one.budgets)]
    if drawn:
        body += picture(
            study_plots.crossover(drawn),
            "Loss against compute at two weight decays",
            "Points are seeds, lines their means. Shaded: 95% intervals, cut at the range tried.",
        )
    return Section("The weight-decay crossover", body + "".join(_crossover(one) for one in found))


def _crossover(one: CrossoverFound) -> str:
    body = f"<h3>{short(one.ud)} unique tokens</h3>" + paragraph(_sentence(crossover_sentence(one)))
    if one.budgets:
        body += table(*crossover_table(one))
    missing = [(scientific(budget.flops), budget.reason) for budget in one.budgets if budget.reason]
    return body + (paragraph("Not trained:") + table(None, missing) if missing else "")


# -- downstream --------------------------------------------------------------------------------------------


def _downstream(directory: StudyDirectory, verdict: Verdict, evaluated: dict[str, Any]) -> Section | None:
    """Bits per byte next to perplexity, for the prescribed runs that `planner evaluate` has scored."""
    try:
        body = "".join(_scores(directory, trial, evaluated) for trial in verdict.trials)
    except (ImportError, InvalidInput) as error:  # without the tasks nothing can have been evaluated here
        if evaluated and isinstance(error, InvalidInput):
            raise
        return None
    intro = (
        "Bits per byte of the right answers, ± standard error over documents, of the first seed of each "
        "configuration; * is the best."
    )
    return Section("Downstream", paragraph(intro) + body) if body else None


def _scores(directory: StudyDirectory, trial: Trial, evaluated: dict[str, Any]) -> str:
    """A table of tasks by prescriptions, each named by the laws that chose it; empty where there is none."""
    from trainer.downstream import bpb_table, stored

    chosen: dict[str, list[str]] = {}
    for tried in trial.laws:
        if tried.configuration is not None:
            chosen.setdefault(tried.configuration.runs[0], []).append(law_label(tried.law))
    folders = {str(directory.run_folder(name)): name for name in chosen}
    results = stored(folders, **evaluated)
    if not results:
        return ""
    runs = [folders[result.model] for result in results]
    trained = [directory.result(name) for name in runs]
    rows = [("perplexity", *(blank_or(run.perplexity if run else None, ".3f") for run in trained))]
    for row in bpb_table(results):
        label = row["task"] + (f" ({row['note']})" if row["note"] else "")
        cells = (row["models"][result.model] for result in results)
        rows.append((label, *(f"{c['bpb']:.4f} ± {c['error']:.4f}{' *' * c['best']}" for c in cells)))
    return f"<h3>{trial_title(trial)}</h3>" + table(("", *(", ".join(chosen[name]) for name in runs)), rows)
