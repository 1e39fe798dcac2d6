"""A tournament as tables, one picture and one page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FormatStrFormatter, LogLocator, NullFormatter
from tournament import CHOICE, IN_SAMPLE, Tournament

from calibration.reports import document
from planner.laws import FORMS
from planner.show import palette

Rows = tuple[Sequence[str], Sequence[Sequence[str]]]


def label(entrant: str) -> str:
    return palette.law_label(entrant) if entrant in FORMS else entrant


def leaderboard(result: Tournament) -> Rows:
    """Entrants by how far they are behind the best of each match."""
    rows = [(label(law), f"{ratio:.2f}", f"{error:.4f}") for law, ratio, error in result.standing()]
    return ("law", "over the best", "mean error"), rows


def matches(result: Tournament, entrants: Sequence[str]) -> Rows:
    """One row for every match: the error of each entrant, and its range over the cuts."""
    header = ("table", "λ", "beyond", "seen", "tried", *map(label, entrants))
    rows = [
        (
            match.table,
            f"{match.weight_decay:g}",
            match.direction
            if match.direction == IN_SAMPLE
            else f"{match.cut.share:.0%} by {match.direction}",
            str(match.cut.seen),
            str(match.cut.tried),
            *(_ranged([cut.errors for cut in match.cuts], entrant) for entrant in entrants),
        )
        for match in result.matches
    ]
    return header, rows


def choices(result: Tournament, entrants: Sequence[str]) -> Rows:
    """Mean regret among equal-compute runs beyond the cut in compute, and its range over the cuts."""
    judged = [match for match in result.matches if match.cut.choices]
    header = ("table", "λ", "choices", *map(label, entrants))
    rows = [
        (
            match.table,
            f"{match.weight_decay:g}",
            str(match.cut.choices),
            *(_ranged([cut.regrets for cut in match.cuts], entrant) for entrant in entrants),
        )
        for match in judged
    ]
    return header, rows


def trusted(result: Tournament) -> Rows:
    """Weights of the tool's choice in every match."""
    rows = []
    for match in result.matches:
        main = list(match.cut.weights.items())[:4]
        text = ", ".join(f"{label(form)} {weight:.0%}" for form, weight in main)
        rows.append((match.table, f"{match.weight_decay:g}", match.direction, text))
    return ("table", "λ", "beyond", "weights"), rows


def _ranged(by_cut: Sequence[Mapping[str, float]], entrant: str) -> str:
    """An entrant's figure at the cut that counts, with its range over all cuts."""
    figures = [figures[entrant] for figures in by_cut if entrant in figures]
    if entrant not in by_cut[0]:
        return "none"
    counts = f"{by_cut[0][entrant]:.3f}"
    return counts if len(by_cut) == 1 else f"{counts} ({min(figures):.3f}-{max(figures):.3f})"


def picture(result: Tournament) -> Figure:
    """Every entrant's errors over the best of their match, one row each, the best on top."""
    standing = result.standing()
    beyond = [match for match in result.matches if match.direction != IN_SAMPLE]
    directions = list(dict.fromkeys(match.direction for match in beyond))
    figure, axes = plt.subplots(figsize=(8, 1.2 + 0.28 * len(standing)), layout="constrained")
    for place, (entrant, ratio, _) in enumerate(standing):
        for number, direction in enumerate(directions):
            points = [
                match.cut.errors[entrant] / min(match.cut.errors.values())
                for match in beyond
                if match.direction == direction and entrant in match.cut.errors
            ]
            axes.plot(
                points,
                np.full(len(points), -place),
                palette.marker(number),
                color=palette.series(number).light,
                alpha=0.7,
                markersize=5,
                label=direction if place == 0 else None,
            )
        axes.plot(ratio, -place, "|", color=palette.INK.light, markersize=14, markeredgewidth=2)
    names = [label(entrant) for entrant, *_ in standing]
    axes.set_yticks(-np.arange(len(standing)), names)
    axes.get_yticklabels()[[entrant for entrant, *_ in standing].index(CHOICE)].set_fontweight("bold")
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter(FormatStrFormatter("%g"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xlabel("error over the smallest of its match (bar: geometric mean)")
    axes.grid(axis="x", alpha=0.3)
    figure.legend(title="beyond", loc="outside right upper", frameon=False)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    return figure


def report(result: Tournament) -> str:
    """The tournament as one self-contained page."""
    entrants = [entrant for entrant, *_ in result.standing()]
    figure = picture(result)
    drawn = document.picture(
        figure, "Leaderboard", "One mark for each match; laws further left are closer to the best."
    )
    plt.close(figure)
    first, ratio, _ = result.standing()[0]
    winner = label(first)
    fitted = "all parameters together" if result.joint else "the base law first, then locked"
    opening = [
        f"{winner[0].upper()}{winner[1:]} came closest to the best law of each match, {ratio:.2f} times its "
        f"error on average over {len([m for m in result.matches if m.direction != IN_SAMPLE])} matches.",
        f"Fitted with {fitted}; errors are of ln(loss), on repeated runs that no fit had seen.",
    ]
    sections = [
        document.Section("Leaderboard", drawn + document.table(*leaderboard(result))),
        document.Section("Every match", document.table(*matches(result, entrants))),
        document.Section("Weights of the tool's choice", document.table(*trusted(result))),
    ]
    if any(match.cut.choices for match in result.matches):
        body = document.table(*choices(result, entrants))
        sections.append(document.Section("Choices among runs of equal compute: mean regret in nats", body))
    return document.page("Law forms beyond their runs", sections, opening)
