"""Random but meaningful laws and budgets."""

from __future__ import annotations

from hypothesis import strategies as st

from planner import FORMS, Law
from planner.laws import repetition_parameters

_BASE = {
    "E": st.floats(0.5, 3.0),
    "A": st.floats(20.0, 3000.0),
    "alpha": st.floats(0.15, 0.6),
    "B": st.floats(100.0, 50_000.0),
    "beta": st.floats(0.15, 0.6),
}
_REPETITION = {
    "R_D_star": st.floats(1.0, 200.0),
    "R_N_star": st.floats(1.0, 1e5),
    "P": st.floats(1e-5, 0.05),
    "delta": st.floats(0.5, 2.0),
    "kappa": st.floats(0.4, 1.6),
    "gamma": st.floats(0.7, 1.1),
    "c": st.floats(0.01, 100.0),
    "rho": st.floats(0.1, 1.0),
}


@st.composite
def laws(draw, forms=tuple(FORMS)) -> Law:
    form = draw(st.sampled_from(forms))
    names = {**_BASE, **{name: _REPETITION[name] for name in repetition_parameters(form)}}
    return Law(form, {name: draw(values) for name, values in names.items()})


unique_tokens = st.floats(6, 11).map(lambda x: 10.0**x)
products = st.floats(4, 12).map(lambda x: 10.0**x)  # params * epochs
sizes = st.floats(5, 11).map(lambda x: 10.0**x)
repeating = st.floats(1.0, 64.0)
