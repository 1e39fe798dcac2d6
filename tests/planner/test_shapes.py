"""Model shapes: the paper's thirteen to the printed digits, and a buildable one for any size."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner import Calibration, InvalidInput, plan, preset, presets, shape_for
from planner.hardware import STUDY_SHAPES, VALIDATION_SHAPES

PRINTED = {
    "15M": "15.87",
    "25M": "24.83",
    "35M": "35.30",
    "50M": "48.25",
    "125M": "134.26",
    "250M": "245.60",
    "500M": "488.55",
    "750M": "778.16",
    "1B": "1128.98",
    "280M": "284.14",
    "350M": "374.07",
    "390M": "392.51",
    "720M": "721.25",
}


@pytest.mark.parametrize("name", PRINTED)
def test_presets_match_the_printed_totals(name: str) -> None:
    shape = preset(name)
    assert f"{shape.params / 1e6:.2f}" == PRINTED[name]
    assert shape.heads * shape.d_head == shape.d_model
    assert shape.params - shape.non_embedding_params == 2 * 32_100 * shape.d_model


def test_preset_names() -> None:
    assert list(presets()) == [*STUDY_SHAPES, *VALIDATION_SHAPES] == list(PRINTED)
    with pytest.raises(InvalidInput, match=r"shape must be one of 15M.*'2B'"):
        preset("2B")


@given(st.floats(6, 11).map(lambda x: 10.0**x), st.sampled_from([256, 1024, 32_000, 32_100, 50_257]))
def test_any_size_can_be_built_within_two_percent(params: float, vocab: int) -> None:
    shape = shape_for(params, vocab)
    assert abs(shape.params / params - 1) <= 0.02
    assert shape.heads * shape.d_head == shape.d_model
    assert shape.d_head % 2 == 0  # rotary embeddings turn pairs
    assert shape.vocab_size == vocab
    assert shape.layers >= 1
    assert shape.d_ff >= 1
    counted = (
        2 * vocab * shape.d_model
        + shape.layers * (4 * shape.d_model**2 + 3 * shape.d_model * shape.d_ff + 2 * shape.d_model)
        + shape.d_model
    )
    assert shape.params == counted


@given(st.floats(7.5, 11).map(lambda x: 10.0**x))
def test_ordinary_sizes_have_ordinary_proportions(params: float) -> None:
    shape = shape_for(params)
    assert 16 <= shape.d_model / shape.layers <= 200
    assert 2.3 <= shape.d_ff / shape.d_model <= 4.6
    assert shape.d_head in (32, 64, 128)


def test_a_preset_is_preferred_where_it_fits() -> None:
    assert shape_for(490e6).preset == "500M"
    assert shape_for("250M").preset == "250M"
    assert shape_for(490e6, 50_257).preset is None


def test_tied_embeddings_count_once() -> None:
    tied = shape_for(1e6, 1024, tied_embeddings=True)
    assert tied.params == tied.non_embedding_params + 1024 * tied.d_model


def test_impossible_shapes_are_named() -> None:
    with pytest.raises(
        InvalidInput,
        match=r"no Llama-2 shape within 2% of 1k parameters.*vocabulary of 32,100.*smaller vocabulary",
    ):
        shape_for(1000)
    with pytest.raises(InvalidInput, match="vocab_size must be a whole number"):
        shape_for(1e8, 100.5)
    p = plan(250e6, 1e16, vocab_size=10_000_000)
    assert p.architecture is None
    assert any("no Llama-2 shape" in warning for warning in p.warnings)


def test_an_unknown_vocabulary_is_assumed_aloud() -> None:
    unknown = Calibration.load().model_copy(update={"vocab_size": None, "name": "mine"})
    assert any(
        "mine does not say its vocabulary" in warning
        for warning in plan(250e6, 1e18, calibration=unknown).warnings
    )
    said = plan(250e6, 1e18, calibration=unknown, vocab_size=32_000).warnings
    assert [one.code for one in said] == ["corpus"]


def test_the_vocabulary_is_an_input() -> None:
    assert plan(250e6, 5e18, vocab_size=50_257).architecture.vocab_size == 50_257  # type: ignore[union-attr]
    assert plan(250e6, 5e18).architecture.vocab_size == 32_100  # type: ignore[union-attr]
