"""The part of a report that only a study has: what was trained, what each law's prescription came to, and the crossover."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from calibration.reports import plots, study_plots
from calibration.reports.report import SECTIONS, Section, SectionMaker, Subject, paragraph, picture, table
from calibration.studies.directory import GRID, VALIDATION, StudyDirectory
from calibration.studies.outcomes import Configuration, CrossoverFound, Trial, Tried, Verdict
from calibration.studies.verdict_files import read
from calibration.studies.verdict_words import beyond_noise, by_regret, figure
from calibration.studies.verdict_words import sentence as crossover_sentence
from calibration.studies.watching import duration
from planner.errors import InvalidInput
from planner.units import scientific, short
from trainer.run.result import RunResult

_SHOWN = 12


def sections(directory: StudyDirectory, **evaluated: Any) -> list[SectionMaker]:
    """The sections of a study's report: the proof first, then the usual ones. `evaluated` are settings of `planner evaluate`."""
    results = {part: directory.results(part) for part in (GRID, VALIDATION)}
    validated = read(directory)

    def what_was_trained(subject: Subject) -> Section:
        return _trained(directory, results)

    def prescriptive_validation(subject: Subject) -> Section | None:
        return None if validated is None or not validated[0].trials else _prescriptive(*validated)

    def weight_decay_crossover(subject: Subject) -> Section | None:
        return (
            None if validated is None or not validated[0].crossovers else _crossovers(validated[0].crossovers)
        )

    def downstream(subject: Subject) -> Section | None:
        return None if validated is None else _downstream(directory, validated[0], evaluated)

    about, *others = SECTIONS
    return [about, what_was_trained, prescriptive_validation, weight_decay_crossover, downstream, *others]


# -- what was trained -----------------------------------------------------------------------------------------------------


def _trained(directory: StudyDirectory, results: dict[str, list[RunResult]]) -> Section:
    names = {GRID: "grid", VALIDATION: "prescribed by laws"}
    rows = [(names[part], *_sums(directory, part, found)) for part, found in results.items()]
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
    failures = _failures(directory)
    if failures:
        finished = {result.run for result in everything}
        body += paragraph("What went wrong on the way; a run that is finished was tried again with success.")
        rows = [
            (name, str(count), "finished" if name in finished else "not finished", why)
            for name, count, why in failures[:_SHOWN]
        ]
        body += table(("run", "attempts that failed", "now", "last reason"), rows)
        if len(failures) > _SHOWN:
            body += paragraph(f"And {len(failures) - _SHOWN} more runs, in failures.jsonl.")
    return Section("What was trained", body)


def _sums(directory: StudyDirectory, part: str, found: Sequence[RunResult]) -> tuple[str, ...]:
    begun = len(list((directory.path / part).glob("*/config.json")))
    seeds = ", ".join(map(str, sorted({result.seed for result in found})))
    flops = sum(result.flops for result in found)
    return (
        str(len(found)),
        str(max(begun - len(found), 0)),
        seeds,
        scientific(flops) if flops else "0",
        duration(sum(result.seconds for result in found)),
        str(sum(result.starts > 1 for result in found)),
    )


def _machine(result: RunResult) -> str:
    how = result.execution
    name = how.get("name") or how.get("device") or "unknown"
    threads = (
        f", {how['threads']} thread{'s' * (how['threads'] != 1)}"
        if how.get("device") == "cpu" and "threads" in how
        else ""
    )
    return f"{name} ({how.get('device', '')}{threads}, {how.get('dtype', '')}, torch {how.get('torch', '?')})"


def _failures(directory: StudyDirectory) -> list[tuple[str, int, str]]:
    """Run, how often, and the last reason."""
    try:
        lines = (directory.path / "failures.jsonl").read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
    found: dict[str, tuple[int, str]] = {}
    for line in lines:
        try:
            entry = json.loads(line)
            name, reason = str(entry["run"]), str(entry["reason"])
        except (ValueError, KeyError, TypeError):
            continue  # the end of a line that a crash cut off
        found[name] = (found.get(name, (0, ""))[0] + 1, reason)
    return [(name, count, reason) for name, (count, reason) in found.items()]


# -- prescriptive validation ----------------------------------------------------------------------------------------------


def _prescriptive(verdict: Verdict, facts: dict[str, Any]) -> Section:
    body = paragraph(
        f"Each law of calibration {facts.get('calibration')} was asked how to spend a budget, and what it said was trained at equal "
        f"compute. Regret is the mean loss over seeds minus the lowest mean loss of anything in the study that was allowed there. A law "
        f"is behind beyond noise where the 95% interval of its difference to the best law, by the scatter of both over their seeds and "
        f"with allowance for the number of laws, does not hold zero."
    )
    rows = [
        (
            plots.LABELS[s.law],
            f"{s.weight_decay:g}",
            f"{s.pairs} of {s.of_pairs}",
            figure(s.regret, ".3f"),
            figure(s.error, ".3f"),
            figure(s.seed_error, ".3f"),
            figure(s.behind, "+.3f"),
            _between(s.behind_interval),
            beyond_noise(s.beyond_noise, s.behind) if s.pairs else "",
            str(s.wins),
        )
        for s in sorted(verdict.standings, key=by_regret)
    ]
    header = (
        "law",
        "λ",
        "budgets",
        "mean regret",
        "± over budgets",
        "± by seeds",
        "behind",
        "95%",
        "beyond noise?",
        "wins",
    )
    body += table(header, rows)
    if any(s.regret is not None for s in verdict.standings):
        body += picture(
            study_plots.regret(verdict),
            "Mean regret of what each law prescribed",
            "Bars: mean over the budgets, with one standard error by seed noise. Points: the budgets. Zero is the best "
            "configuration that was trained.",
        )
    for trial in verdict.trials:
        body += _trial(trial)
    return Section("Which law prescribes best", body)


def _trial(trial: Trial) -> str:
    noise = (
        f"pooled seed noise {trial.noise:.4f}"
        if trial.noise is not None
        else "seed noise unknown with one seed"
    )
    body = f"<h3>{short(trial.ud)} unique tokens, {scientific(trial.flops)} FLOPs, λ = {trial.weight_decay:g}</h3>"
    rows = [_tried(tried, tried.configuration) for tried in trial.laws if tried.configuration is not None]
    if rows:
        header = (
            "law",
            "parameters",
            "epochs",
            "predicted",
            "loss",
            "seeds",
            "perplexity",
            "regret",
            "behind",
            "beyond noise?",
        )
        body += table(header, rows)
    missing = [(plots.LABELS[tried.law], tried.reason) for tried in trial.laws if tried.reason]
    if missing:
        body += paragraph("Not trained:") + table(None, missing)
    if trial.best is not None:
        body += paragraph(f"Best of all that was trained: {_words(trial.best)}; {noise}.")
    return body


def _tried(tried: Tried, trained: Configuration) -> tuple[str, ...]:
    return (
        plots.LABELS[tried.law],
        short(trained.params),
        f"{trained.epochs:.4g}",
        figure(tried.predicted_loss, ".3f"),
        _loss(trained, 3),
        str(len(trained.losses)),
        figure(tried.perplexity, ".1f"),
        figure(tried.regret, ".3f"),
        figure(tried.behind, "+.3f"),
        beyond_noise(tried.beyond_noise, tried.behind),
    )


def _words(c: Configuration) -> str:
    seeds = f"{len(c.losses)} seed{'s' * (len(c.losses) > 1)}"
    epochs = f"{c.epochs:.4g} epoch{'s' * (c.epochs != 1)}"
    return f"{short(c.params)} parameters, {short(c.unique_tokens)} unique tokens, {epochs}, loss {_loss(c)}, {seeds}"


# -- crossover ------------------------------------------------------------------------------------------------------------


def _crossovers(found: Sequence[CrossoverFound]) -> Section:
    body = paragraph(
        "Each weight decay was given its own optimum at multiples of the compute at which the law says that they swap places. The "
        "observed crossover is where the difference of the mean losses changes its sign; its interval comes from drawing the seeds "
        "again."
    )
    drawn = [one for one in found if any(budget.difference is not None for budget in one.budgets)]
    if drawn:
        body += picture(
            study_plots.crossover(drawn),
            "Loss against compute at two weight decays",
            "Points are seeds, lines their means. Shaded: 95% intervals, cut at the range tried.",
        )
    for one in found:
        body += f"<h3>{short(one.ud)} unique tokens</h3>" + paragraph(
            crossover_sentence(one)[:1].upper() + crossover_sentence(one)[1:] + "."
        )
        rows = [
            (
                scientific(budget.flops),
                *_side(budget.weaker),
                *_side(budget.stronger),
                figure(budget.difference, "+.4f") or budget.reason,
            )
            for budget in one.budgets
        ]
        if rows:
            sides = [
                cell
                for decay in (one.weaker, one.stronger)
                for cell in (f"λ = {decay:g}: parameters", "epochs", "loss")
            ]
            body += table(("FLOPs", *sides, "difference"), rows)
    return Section("The weight-decay crossover", body)


def _side(c: Configuration | None) -> tuple[str, str, str]:
    return ("", "", "") if c is None else (short(c.params), f"{c.epochs:.4g}", _loss(c))


# -- downstream -----------------------------------------------------------------------------------------------------------


def _downstream(directory: StudyDirectory, verdict: Verdict, evaluated: dict[str, Any]) -> Section | None:
    """Bits per byte next to perplexity, for the prescribed runs that `planner evaluate` has scored; nothing where it has not."""
    try:
        from trainer.downstream import bpb_table, stored
    except ImportError:
        return None
    body = ""
    for trial in verdict.trials:
        chosen = {c.runs[0]: [] for tried in trial.laws if (c := tried.configuration) is not None}  # type: dict[str, list[str]]
        for tried in trial.laws:
            if tried.configuration is not None:
                chosen[tried.configuration.runs[0]].append(plots.LABELS[tried.law])
        folders = {str(directory.run_folder(name)): name for name in chosen}
        try:
            results = stored(folders, **evaluated)
        except InvalidInput:  # without the tasks' data nothing can have been evaluated here
            if evaluated:
                raise
            return None
        if not results:
            continue
        body += f"<h3>{short(trial.ud)} unique tokens, {scientific(trial.flops)} FLOPs, λ = {trial.weight_decay:g}</h3>"
        named = {result.model: ", ".join(chosen[folders[result.model]]) for result in results}
        perplexity = {
            model: (result.perplexity if (result := directory.result(folders[model])) else None)
            for model in named
        }
        rows = [("perplexity", *(figure(perplexity[model], ".3f") for model in named))]
        for row in bpb_table(results):
            cells = [row["models"][model] for model in named]
            label = row["task"] + (f" ({row['note']})" if row["note"] else "")
            rows.append(
                (
                    label,
                    *(
                        f"{cell['bpb']:.4f} ± {cell['error']:.4f}{' *' if cell['best'] else ''}"
                        for cell in cells
                    ),
                )
            )
        body += table(("", *named.values()), rows)
    if not body:
        return None
    intro = "Bits per byte of the right answers, ± standard error over documents, of the first seed of each configuration; * is the best."
    return Section("Downstream", paragraph(intro) + body)


# -- cells ----------------------------------------------------------------------------------------------------------------


def _loss(c: Configuration, digits: int = 4) -> str:
    return f"{c.loss:.{digits}f}" + ("" if c.deviation is None else f" ± {c.deviation:.{digits}f}")


def _between(ends: tuple[float, float] | None) -> str:
    return "" if ends is None else f"{ends[0]:+.3f} to {ends[1]:+.3f}"
