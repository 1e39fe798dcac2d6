"""Colours: one for one thing, readable on light and dark paper, for every law there is or will be."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np
import pytest

from planner.laws import FORMS
from planner.show import palette

LIGHT = ("#ffffff",)
DARK = ("#0a0f1e", "#16181b")  # of the web page, and of reports
# What people with dichromatic vision see of linear light (Machado, Oliveira and Fernandes 2009).
DEUTAN = [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
PROTAN = [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]


def linear(colour: str) -> np.ndarray:
    parts = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    return np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)


def contrast(one: str, other: str) -> float:
    low, high = sorted(float(linear(colour) @ [0.2126, 0.7152, 0.0722]) for colour in (one, other))
    return (high + 0.05) / (low + 0.05)


def lab(light: np.ndarray) -> np.ndarray:
    to_xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
    share = to_xyz @ np.clip(light, 0, 1) / [0.9505, 1.0, 1.089]
    x, y, z = np.where(share > 0.008856, np.cbrt(share), 7.787 * share + 16 / 116)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def nearest(colours: Sequence[str], vision: Sequence[Sequence[float]]) -> float:
    seen = [lab(np.asarray(vision) @ linear(colour)) for colour in colours]
    return min(float(np.linalg.norm(one - other)) for one, other in combinations(seen, 2))


def test_every_colour_stands_out_from_its_paper() -> None:
    for look in palette.styles():
        assert min(contrast(look.light, paper) for paper in LIGHT) >= 3, look
        assert min(contrast(look.dark, paper) for paper in DARK) >= 3, look


@pytest.mark.parametrize("vision", [np.eye(3), DEUTAN, PROTAN], ids=["full", "deutan", "protan"])
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_weight_decays_and_terms_can_be_told_apart_by_colour_alone(vision: list, dark: bool) -> None:
    for looks in (palette.SERIES, tuple(palette.TERMS.values())):
        assert nearest([look.colour(dark) for look in looks], vision) > 12


def test_laws_differ_in_colour_and_in_dash() -> None:
    looks = [palette.law_style(form) for form in FORMS]
    for dark in (False, True):
        assert nearest([look.colour(dark) for look in looks], np.eye(3)) > 12
    assert len({look.dash for look in looks}) == len(looks)
    assert len({palette.law_label(form) for form in FORMS}) == len(FORMS)


def test_a_colour_on_light_paper_has_one_on_dark() -> None:
    """A page swaps them by the first, so one colour must not stand for two."""
    pairs = {(look.light, look.dark) for look in palette.styles()}
    assert len({light for light, _ in pairs}) == len(pairs)


def test_every_dash_is_one_that_matplotlib_draws() -> None:
    from matplotlib.lines import Line2D

    for look in palette.styles():
        Line2D([0, 1], [0, 1], linestyle=palette.line_style(look.dash), marker=palette.marker(3))
