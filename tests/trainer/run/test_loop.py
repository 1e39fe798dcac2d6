"""A run from its configuration to its result: what it records, how it continues, and how it stops."""

from __future__ import annotations

import json
import math
import shutil
from contextlib import nullcontext
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from planner.inputs import InvalidInput
from tests.trainer.conftest import losses
from trainer import RunConfig, TrainingStopped, read_result, train
from trainer.data.batches import PADDING, Batches
from trainer.data.tokens import open_set
from trainer.errors import Busy
from trainer.files import checksum, locked, read_json, write_json
from trainer.run import watch
from trainer.run.export import load_run


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "final" / "model.safetensors")


def same(one: Path, two: Path) -> bool:
    a, b = weights(one), weights(two)
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def stop_after(steps: int) -> Any:
    """A `should_stop` that says yes after so many steps."""
    count = iter(range(1, 10**6))
    return lambda: next(count) >= steps


def test_validation_ends_after_so_many_tokens_and_says_so(settings: dict[str, Any], tmp_path: Path) -> None:
    settings |= {"epochs": 0.2}
    whole = train(RunConfig(**settings), tmp_path / "whole")
    assert whole.remarks == []
    part = train(RunConfig(**settings, validation_tokens=1000), tmp_path / "part")
    facts = part.data["validation_set"]
    assert (facts["tokens"], facts["documents"], facts["bytes"]) == (1000, 2, 999)  # EOS after the first
    assert part.bits_per_byte == pytest.approx(part.loss * 1000 / math.log(2) / 999)
    assert "first 1,000 of" in part.remarks[0]
    data = open_set(Path(settings["cache"]) / part.data["fingerprint"])
    piece = torch.from_numpy(data.stream("validation")[:1001].astype("int64"))
    rows = [piece[start : start + 33] for start in range(0, 1000, 32)]
    model = load_run(tmp_path / "part")[0]
    with torch.no_grad():
        nats = sum(model(row[None, :-1], row[None, 1:]).item() for row in rows)
    assert part.loss == pytest.approx(nats / 1000, abs=1e-5)
    # a bound that binds nothing is no other run, and no other identity than before there was one
    assert "validation_tokens" not in RunConfig(**settings).identity()
    assert RunConfig(**settings).most_validation_tokens == 500 * 4 * 32


def test_validation_is_shown_while_it_goes_on(
    settings: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[tuple[str, int, int]] = []
    monkeypatch.setattr(watch.JsonLines, "validating", lambda self, *along: told.append(along))
    facts = train(RunConfig(**settings | {"epochs": 0.1}), tmp_path / "run").data["validation_set"]
    assert [name for name, _, _ in told] == ["validation"] * len(told)
    assert [done for _, done, _ in told] == sorted({done for _, done, _ in told})
    assert told[-1][1:] == (facts["tokens"], facts["tokens"])


def test_a_run_learns_and_records_what_it_was(settings: dict[str, Any], tmp_path: Path) -> None:
    config = RunConfig(
        **settings | {"unique_tokens": 32 * 80 + 17, "epochs": 2.49, "weight_decay": 0.3, "seed": 5}
    )
    result = train(config, tmp_path / "run")
    assert result == read_result(tmp_path / "run")
    assert (result.unique_tokens, result.tokens, result.steps) == (32 * 80, 32 * 199, 50)
    assert result.epochs == 199 / 80
    assert result.loss < losses(tmp_path / "run")[0][1] - 1  # it has learnt something
    assert result.perplexity == pytest.approx(math.exp(result.loss))
    facts = result.data["validation_set"]
    assert result.bits_per_byte == pytest.approx(result.loss * facts["tokens"] / math.log(2) / facts["bytes"])
    assert facts["documents"] == 5
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    assert result.mfu is not None
    assert result.mfu > 0
    assert all(json.loads(line)["mfu"] > 0 for line in lines[:-1])  # the last one is the validation
    assert result.flops == 6 * result.params * result.tokens
    assert (result.weight_decay, result.seed, result.starts) == (0.3, 5, 1)
    assert (result.execution["device"], result.execution["attention"], result.execution["dtype"]) == (
        "cpu",
        "sdpa",
        "fp32",
    )
    assert "head.weight" in result.recipe["decayed"]
    assert result.recipe["not_decayed"] == [name for name in result.recipe["not_decayed"] if "norm" in name]
    assert {
        "run",
        "params",
        "unique_tokens",
        "epochs",
        "tokens",
        "weight_decay",
        "loss",
    } <= result.row().keys()
    assert not (tmp_path / "run" / "checkpoints").exists()


def test_seeds_differ_and_runs_repeat_to_the_bit(settings: dict[str, Any], tmp_path: Path) -> None:
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        train(RunConfig(**settings | {"seed": seed, "epochs": 1}), tmp_path / name)
    assert same(tmp_path / "a", tmp_path / "b")
    assert losses(tmp_path / "a") == losses(tmp_path / "b")
    assert not same(tmp_path / "a", tmp_path / "c")


def test_training_sees_each_chunk_once_per_epoch(
    settings: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []
    plain = Batches.arrays
    monkeypatch.setattr(
        Batches, "arrays", lambda self, rows: (seen.extend(rows.tolist()), plain(self, rows))[1]
    )
    train(RunConfig(**settings | {"batch_size": 7, "micro_batch": 3, "epochs": 2.5}), tmp_path / "run")
    real = [chunk for chunk in seen if chunk != PADDING]
    assert sorted(real[:80]) == sorted(real[80:160]) == list(range(80))
    assert len(set(real[160:])) == len(real[160:]) == 40
    assert real[:80] != real[80:160]


def test_a_finished_run_is_never_trained_again(settings: dict[str, Any], tmp_path: Path) -> None:
    config = RunConfig(**settings)
    first = train(config, tmp_path / "run")
    stamp = (tmp_path / "run" / "result.json").stat().st_mtime_ns
    assert train(config.having(log_every=7), tmp_path / "run") == first  # how it is run may differ
    assert (tmp_path / "run" / "result.json").stat().st_mtime_ns == stamp
    with pytest.raises(InvalidInput, match=r"finished run with another weight_decay .0.1, now 1.0."):
        train(config.having(weight_decay=1.0), tmp_path / "run")


@pytest.mark.parametrize("library", ["torch", "onednn"])
def test_a_stopped_run_continues_to_the_same_bits(
    settings: dict[str, Any], tmp_path: Path, library: str
) -> None:
    config = RunConfig(**settings, products=library)
    whole = train(config, tmp_path / "whole")
    for steps in (7, 20, 25):
        with pytest.raises(TrainingStopped, match="the same command continues"):
            train(config, tmp_path / "parts", should_stop=stop_after(steps))
    parts = train(config, tmp_path / "parts")
    assert parts.starts == 4
    assert same(tmp_path / "whole", tmp_path / "parts")
    assert losses(tmp_path / "whole") == losses(tmp_path / "parts")
    assert (parts.loss, parts.train_loss) == (whole.loss, whole.train_loss)
    assert parts.remarks == []


def test_another_library_of_products_is_another_way_to_the_same_loss(
    settings: dict[str, Any], tmp_path: Path
) -> None:
    config = RunConfig(**settings | {"epochs": 1})
    both = [train(config.having(products=name), tmp_path / name) for name in ("torch", "onednn")]
    assert both[0].loss == pytest.approx(both[1].loss, abs=1e-3)
    assert both[0].config_fingerprint == both[1].config_fingerprint  # how, not what
    with pytest.raises(TrainingStopped):
        train(config.having(products="torch"), tmp_path / "parts", should_stop=stop_after(7))
    parts = train(config.having(products="onednn"), tmp_path / "parts")
    assert parts.remarks == [
        "continued at step 7 with another products; its bits may differ from an uninterrupted run"
    ]


@pytest.mark.slow
@pytest.mark.filterwarnings(
    "ignore::DeprecationWarning", "ignore:The .grad attribute"
)  # of torch's compiler about torch itself
def test_a_compiled_run_continues_to_the_same_bits(settings: dict[str, Any], tmp_path: Path) -> None:
    config = RunConfig(**settings | {"compile": "on", "micro_batch": 2})
    result = train(config, tmp_path / "whole")
    assert result.execution["compiled"]
    with pytest.raises(TrainingStopped):
        train(config, tmp_path / "parts", should_stop=stop_after(31))
    train(config, tmp_path / "parts")
    assert same(tmp_path / "whole", tmp_path / "parts")
    plain = train(config.having(compile="off"), tmp_path / "plain")
    assert plain.loss == pytest.approx(result.loss, abs=1e-2)


def test_without_a_compiler_the_run_says_so(
    settings: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainer.run.device.has_compiler", lambda: False)
    result = train(RunConfig(**settings | {"compile": "on", "epochs": 0.2}), tmp_path / "run")
    assert not result.execution["compiled"]
    assert "C++ compiler" in result.remarks[0]


@pytest.mark.parametrize("tied", [False, True])
def test_accumulation_changes_nothing_but_memory(
    settings: dict[str, Any], tmp_path: Path, tied: bool
) -> None:
    found = []
    for rows in (8, 3, 1):
        changes = {
            "batch_size": 8,
            "micro_batch": rows,
            "epochs": 1.3,
            "tied_embeddings": tied,
            "learning_rate": 1e-3,
        }
        train(RunConfig(**settings | changes), tmp_path / str(rows))
        found.append(losses(tmp_path / str(rows)))
    for other in found[1:]:
        assert [step for step, _ in other] == [step for step, _ in found[0]]
        assert [loss for _, loss in other] == pytest.approx([loss for _, loss in found[0]], abs=1e-4)


def test_a_step_without_a_number_is_left_out_and_counted(
    settings: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from trainer.model.llama import Llama

    plain, config = Llama.forward, RunConfig(**settings)
    for name, stops in (("whole", []), ("parts", [12, 20])):
        calls = iter(range(1, 10**6))
        monkeypatch.setattr(
            Llama,
            "forward",
            lambda *args, c=calls: plain(*args) * (math.nan if next(c) in (13, 40, 41) else 1),
        )
        for steps in stops:
            with pytest.raises(TrainingStopped):
                train(config, tmp_path / name, should_stop=stop_after(steps))
        assert train(config, tmp_path / name).skipped_steps == 3
    assert same(tmp_path / "whole", tmp_path / "parts")
    assert losses(tmp_path / "whole") == losses(tmp_path / "parts")
    assert len(losses(tmp_path / "whole")) == 57


def test_losses_that_are_no_numbers_stop_the_run_and_keep_the_checkpoint(
    settings: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = RunConfig(**settings | {"checkpoint_every": 5})
    train(config, tmp_path / "whole")
    from trainer.model.llama import Llama

    plain, calls = Llama.forward, iter(range(1, 10**6))
    monkeypatch.setattr(Llama, "forward", lambda *args: plain(*args) * (math.nan if next(calls) >= 13 else 1))
    with pytest.raises(
        TrainingStopped, match=r"steps 13 to 17 .epoch 0.65. are not numbers .*first in gradients of"
    ):
        train(config, tmp_path / "run")
    kept = sorted(path.name for path in (tmp_path / "run" / "checkpoints").iterdir())
    assert kept == ["step-00000005", "step-00000010"]
    monkeypatch.undo()
    train(config, tmp_path / "run")
    assert same(tmp_path / "whole", tmp_path / "run")


def test_a_truly_diverging_run_stops(settings: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(TrainingStopped, match=r"not (a )?number"):
        train(RunConfig(**settings | {"learning_rate": 1e30, "weight_decay": 0.0}), tmp_path / "run")
    assert read_result(tmp_path / "run") is None


def test_another_configuration_or_other_data_is_refused(settings: dict[str, Any], tmp_path: Path) -> None:
    texts = tmp_path / "texts"
    shutil.copytree(settings["corpus"], texts)
    config = RunConfig(**settings | {"corpus": str(texts)})
    with pytest.raises(TrainingStopped):
        train(config, tmp_path / "run", should_stop=stop_after(9))
    before = sorted(
        (path.name, path.stat().st_mtime_ns) for path in (tmp_path / "run").rglob("*") if path.name != ".lock"
    )
    with pytest.raises(InvalidInput, match=r"holds a run with another seed .0, now 1."):
        train(config.having(seed=1), tmp_path / "run")
    (texts / "003.txt").write_text("something else\n" * 30)
    with pytest.raises(InvalidInput, match="belongs to a run on other data"):
        train(config, tmp_path / "run")
    assert before == sorted(
        (path.name, path.stat().st_mtime_ns) for path in (tmp_path / "run").rglob("*") if path.name != ".lock"
    )


def test_a_dataset_that_changed_under_its_name_is_noticed(settings: dict[str, Any], tmp_path: Path) -> None:
    config = RunConfig(**settings | {"checkpoint_every": 5, "cache": str(tmp_path / "cache")})
    with pytest.raises(TrainingStopped):
        train(config, tmp_path / "run", should_stop=stop_after(6))
    (facts,) = (tmp_path / "cache").glob("*/tokens.json")
    with open(
        facts.with_name("train.bin"), "r+b"
    ) as stream:  # as if the same fingerprint had been made from other text
        stream.seek(100)
        stream.write(b"\1\0")
    known = read_json(facts)
    write_json(
        facts, known | {"blake2b": known["blake2b"] | {"train.bin": checksum(facts.with_name("train.bin"))}}
    )
    with pytest.raises(InvalidInput, match="belongs to a run on other tokens"):
        train(config, tmp_path / "run")
    write_json(facts, known)
    with pytest.raises(InvalidInput, match=r"train.bin is damaged"):
        train(config, tmp_path / "run")


def test_damaged_and_foreign_checkpoints_are_refused(settings: dict[str, Any], tmp_path: Path) -> None:
    config = RunConfig(**settings)
    for name, seed in (("one", 0), ("two", 1)):
        with pytest.raises(TrainingStopped):
            train(config.having(seed=seed), tmp_path / name, should_stop=stop_after(9))
    step = tmp_path / "one" / "checkpoints" / "step-00000009"
    kept = tmp_path / "kept"
    shutil.copytree(step, kept)

    shutil.rmtree(step)
    shutil.copytree(tmp_path / "two" / "checkpoints" / "step-00000009", step)
    with pytest.raises(InvalidInput, match=r"belongs to a run with another seed .1, now 0."):
        train(config, tmp_path / "one")

    part = "part-00000.safetensors"
    for file, damage, message in (
        (part, lambda raw: raw[:-1] + bytes([raw[-1] ^ 1]), f"{part} does not match its checksum"),
        (part, lambda raw: raw[: len(raw) // 2], f"{part} does not match its checksum"),
        ("state.json", lambda raw: raw[:30], "is damaged"),
        ("state.json", lambda raw: b"[]", r"is damaged .*; delete .*checkpoints to start again"),
        (part, None, "no such file"),
    ):
        shutil.rmtree(step)
        shutil.copytree(kept, step)
        raw = (step / file).read_bytes()
        (step / file).unlink() if damage is None else (step / file).write_bytes(damage(raw))
        with pytest.raises(InvalidInput, match=message):
            train(config, tmp_path / "one")
        assert step.is_dir()  # nothing is deleted

    older = step.with_name("step-00000005")  # an older intact one is used, and the run says so
    shutil.copytree(kept, older)
    result = train(config, tmp_path / "one")
    assert "is damaged" in result.remarks[0]


def test_two_processes_cannot_train_one_directory(settings: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    with locked(tmp_path / "run" / ".lock"), pytest.raises(Busy, match=r"is being trained .by process"):
        train(RunConfig(**settings), tmp_path / "run")


def test_bf16_computes_nearly_the_same(settings: dict[str, Any], tmp_path: Path) -> None:
    exact, rough = (
        train(RunConfig(**settings | {"dtype": dtype, "learning_rate": 1e-3}), tmp_path / dtype)
        for dtype in ("fp32", "bf16")
    )
    assert rough.execution["dtype"] == "bf16"
    assert rough.loss == pytest.approx(exact.loss, abs=0.02)
    assert rough.loss != exact.loss
    assert all(tensor.dtype == torch.float32 for tensor in weights(tmp_path / "bf16").values())


@pytest.mark.parametrize(
    ("changes", "package"), [({"tensorboard": True}, "tensorboard"), ({"wandb": "project"}, "wandb")]
)
def test_watchers_work_or_say_what_is_missing(
    settings: dict[str, Any],
    tmp_path: Path,
    changes: dict[str, Any],
    package: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = RunConfig(**settings | changes | {"epochs": 0.2})
    if find_spec(package) is None:
        with pytest.raises(InvalidInput, match=f"pip install {package} would do"):
            train(config, tmp_path / "run")
        return
    monkeypatch.setenv("WANDB_MODE", "offline")
    train(config, tmp_path / "run")
    assert any((tmp_path / "run" / package).iterdir())


def test_the_state_of_the_library_is_left_alone(settings: dict[str, Any], tmp_path: Path) -> None:
    torch.manual_seed(1)
    before = (
        torch.get_rng_state(),
        torch.get_num_threads(),
        torch.are_deterministic_algorithms_enabled(),
        torch.get_default_dtype(),
    )
    train(RunConfig(**settings | {"epochs": 0.1}), tmp_path / "run")
    assert torch.equal(before[0], torch.get_rng_state())
    assert before[1:] == (
        torch.get_num_threads(),
        torch.are_deterministic_algorithms_enabled(),
        torch.get_default_dtype(),
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"unique_tokens": "10M"}, "asks for 10,000,000 tokens, but the training documents have"),
        ({"sequence_length": 10**6, "unique_tokens": 10**6}, "fewer than one sequence of 1,000,000"),
        ({"attention": "flash", "corpus": "nowhere"}, "attention = 'flash' cannot work here"),
        ({"device": "cuda:7"}, "device 'cuda:7' is not there"),
        ({"device": "toaster"}, "device must be auto, cpu, cuda"),
        ({"corpus": "nowhere"}, "corpus nowhere is neither a file"),
        ({"tokenizer": "nothing.model"}, "there is no file 'nothing.model'"),
        ({"shape": {"d_model": 10**6, "layers": 99, "heads": 2, "d_ff": 10**6}}, "GiB on each device and"),
        ({"vocab_size": 100}, "smaller than the tokenizer's 257"),
    ],
)
def test_bad_input_is_named_before_training(
    settings: dict[str, Any], tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidInput, match=message):
        train(RunConfig(**settings | changes), tmp_path / "run")
    assert not (tmp_path / "run" / "checkpoints").exists()


def test_a_directory_that_cannot_be_written_is_named(settings: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidInput, match=r"run directory .* cannot be written"):
        train(RunConfig(**settings), tmp_path / "file" / "run")
    with pytest.raises(InvalidInput, match=r"run directory /proc/run cannot be written"):
        train(RunConfig(**settings), "/proc/run")
    with pytest.raises(InvalidInput, match="token files cannot be written"):
        train(RunConfig(**settings | {"cache": str(tmp_path / "file" / "cache")}), tmp_path / "run")


def test_a_damaged_result_is_named(settings: dict[str, Any], tmp_path: Path) -> None:
    train(RunConfig(**settings | {"epochs": 0.1}), tmp_path / "run")
    (tmp_path / "run" / "result.json").write_text(json.dumps({"run": "x"}))
    with pytest.raises(InvalidInput, match=r"result.json is damaged"):
        read_result(tmp_path / "run")


def test_a_directory_of_somebody_else_is_left_alone(settings: dict[str, Any], tmp_path: Path) -> None:
    theirs = [
        tmp_path / "project" / name
        for name in (".git/HEAD", ".venv/python", "final/thesis.txt", "checkpoints/mine")
    ]
    for path in theirs:
        path.parent.mkdir(parents=True)
        path.write_text("precious")
    config = RunConfig(**settings | {"epochs": 0.1})
    with pytest.raises(InvalidInput, match="is not a run directory, and not empty; name a new one"):
        train(config, tmp_path / "project")
    train(config, tmp_path / "run")
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text('{"architectures": ["LlamaForCausalLM"]}')
    with pytest.raises(InvalidInput, match="is not the configuration of a run"):
        train(config, tmp_path / "model")
    assert all(path.read_text() == "precious" for path in theirs)


def test_hidden_folders_in_a_run_directory_stay(settings: dict[str, Any], tmp_path: Path) -> None:
    config = RunConfig(**settings | {"epochs": 0.2})
    with pytest.raises(TrainingStopped):
        train(config, tmp_path / "run", should_stop=stop_after(1))
    for name in (".git", ".final.123", "checkpoints/.step-00000009.77"):
        (tmp_path / "run" / name).mkdir()
    train(config, tmp_path / "run")
    assert (tmp_path / "run" / ".git").is_dir()
    assert not (tmp_path / "run" / ".final.123").exists()  # a draft that a killed process left


class Interrupting(nullcontext[None]):
    def __enter__(self) -> None:
        raise KeyboardInterrupt


def test_a_failed_start_can_be_corrected(settings: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="unique_tokens asks for"):
        train(RunConfig(**settings | {"unique_tokens": "10M"}), tmp_path / "run")
    with pytest.raises(InvalidInput, match="held-out ones"):
        train(RunConfig(**settings | {"validation_documents": 80}), tmp_path / "run")
    with pytest.raises(KeyboardInterrupt):  # in the first step
        train(RunConfig(**settings), tmp_path / "run", during_steps=Interrupting())
    config = RunConfig(**settings | {"epochs": 0.1})
    assert train(config, tmp_path / "run").steps == 2
    assert json.loads((tmp_path / "run" / "config.json").read_text())["epochs"] == 0.1


@pytest.mark.parametrize(
    ("rate", "message"),
    [(1e30, "validation loss after step 1 is not a number"), (1e300, "weights after step 1")],
)
def test_a_last_update_that_breaks_the_model_leaves_no_half_run(
    settings: dict[str, Any], tmp_path: Path, rate: float, message: str
) -> None:
    config = RunConfig(**settings | {"epochs": 0.05, "learning_rate": rate, "weight_decay": 0.0})
    with pytest.raises(TrainingStopped, match=message):
        train(config, tmp_path / "run")
    assert not {"checkpoints", "final", "result.json"} & {path.name for path in (tmp_path / "run").iterdir()}
    assert [step for step, _ in losses(tmp_path / "run")] == [1]


def test_the_same_files_under_another_path_are_the_same_run(
    settings: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = tmp_path / "texts"
    shutil.copytree(settings["corpus"], texts)
    config = RunConfig(**settings | {"corpus": str(texts), "epochs": 0.2})
    with pytest.raises(TrainingStopped):
        train(config, tmp_path / "run", should_stop=stop_after(2))
    monkeypatch.chdir(tmp_path)
    first = train(config.having(corpus="texts"), tmp_path / "run")
    assert first.starts == 2
    with pytest.raises(InvalidInput, match=r"with another corpus.separator .None, now 'x'.; another"):
        train(config.having(corpus={"paths": "texts", "separator": "x"}), tmp_path / "run")
    with pytest.raises(InvalidInput, match=r"finished run with another dtype .'auto', now 'bf16'."):
        train(config.having(dtype="bf16"), tmp_path / "run")
    (texts / "003.txt").write_text("something else")
    with pytest.raises(InvalidInput, match="finished run on other data"):
        train(config, tmp_path / "run")
    shutil.rmtree(texts)
    again = train(config, tmp_path / "run")
    assert again.loss == first.loss
    assert "was not checked: corpus" in again.remarks[-1]


def test_a_tokenizer_that_was_half_copied_is_repaired(settings: dict[str, Any], tmp_path: Path) -> None:
    config = RunConfig(**settings | {"epochs": 0.2})
    with pytest.raises(TrainingStopped):
        train(config, tmp_path / "run", should_stop=stop_after(1))
    folder = tmp_path / "run" / "tokenizer"
    whole = {path.name: path.read_bytes() for path in folder.iterdir()}
    (folder / "tokenizer.json").write_text("{")
    (folder / "tokenizer_config.json").unlink()
    (tmp_path / "run" / ".tokenizer.99").mkdir()
    train(config, tmp_path / "run")
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == whole
    assert not (tmp_path / "run" / ".tokenizer.99").exists()


def test_a_pass_that_does_not_fit_is_made_smaller(
    settings: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from trainer.model.llama import Llama

    changes = {"epochs": 0.2, "batch_size": 8, "learning_rate": 1e-3}
    train(RunConfig(**settings | changes | {"micro_batch": 2}), tmp_path / "small")
    plain = Llama.forward

    def tight(self: Any, ids: torch.Tensor, *rest: Any) -> torch.Tensor:
        if len(ids) > 2:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return plain(self, ids, *rest)

    monkeypatch.setattr(Llama, "forward", tight)
    result = train(RunConfig(**settings | changes | {"micro_batch": 8}), tmp_path / "tight")
    assert result.execution["micro_batch"] == 2
    assert "passes of 8 rows did not fit the memory at step 1; it went on with 4" in result.remarks
    assert same(tmp_path / "small", tmp_path / "tight")
    monkeypatch.setattr(Llama, "forward", lambda *args: (_ for _ in ()).throw(torch.OutOfMemoryError("no")))
    with pytest.raises(TrainingStopped, match="a pass of 1 rows does not fit"):
        train(RunConfig(**settings | changes), tmp_path / "never")
