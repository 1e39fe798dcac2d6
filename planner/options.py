"""The inputs of a plan in words, said once for the shell's help, the page's labels and the errors of both.

The values themselves are checked where they are used: budgets and limits in `inputs`, accelerators in
`hardware`, law and weight decay by the calibration.
"""

from __future__ import annotations

from typing import NamedTuple

from planner.calibration import DEFAULT_CALIBRATION
from planner.hardware import ACCELERATORS, DEFAULT_MFU
from planner.inputs import ALL, CEILING, CONTINUOUS_EPOCHS, WHOLE
from planner.laws import DEFAULT_FORM, FORMS


class Option(NamedTuple):
    """One input: what it is called next to its field on a page, and what a shell says of it."""

    label: str
    help: str  # other inputs are mentioned in ‹›
    metavar: str = ""
    default: str = ""  # what holds where nothing is given, in words
    flag: str = ""  # where it is typed otherwise than it is called
    also: tuple[str, ...] = ()  # what else people call it
    choices: tuple[str, ...] = ()
    is_flag: bool = False


OPTIONS = {
    "ud": Option(
        "Unique tokens",
        "Unique training tokens you have: 250M, 0.25B; or how long the text is: 433MB, '10M words'.",
        metavar="TOKENS",
        also=("tokens", "unique_tokens"),
    ),
    "bytes_per_token": Option(
        "Bytes per token",
        "Of your text and tokenizer: turns bytes and words into tokens, nats per token into bits per byte.",
        metavar="BYTES",
        default="the calibration's",
    ),
    "also": Option(
        "Other tokens",
        "Tokens of another kind that you have besides (noisier, another language): 20B.",
        metavar="TOKENS",
    ),
    "finetune": Option(
        "Fine-tuning", "Whether a trained model goes on: says why no law here is for that.", is_flag=True
    ),
    "flops": Option(
        "FLOPs",
        "Training compute: 5e18, '5 EFLOP', unlimited. Or give ‹gpu› and ‹hours›.",
        metavar="FLOPS",
    ),
    "target_loss": Option(
        "Loss to reach", "The least compute that reaches this loss, in place of ‹flops›: 3.0.", metavar="NATS"
    ),
    "gpu": Option(
        "Kind",
        f"Accelerator to count compute and cost with, or several (8xH100): {', '.join(ACCELERATORS)}.",
        metavar="NAME",
    ),
    "gpus": Option("GPUs", "How many of them.", "N", default="1"),
    "hours": Option("Hours on these GPUs", "For how long: 3, 90min, '2 days'.", "H"),
    "budget_usd": Option(
        "$ to spend",
        "Money to spend on ‹gpu›, in place of ‹flops› or ‹hours›: 500, '$500', 5k.",
        metavar="USD",
        also=("budget",),
    ),
    "tflops": Option(
        "Peak TFLOP/s",
        "An accelerator of your own in place of ‹gpu›: its dense bf16 speed, with ‹memory› and ‹price›.",
        metavar="TFLOP/s",
    ),
    "memory": Option("Memory in GB", "Memory of an accelerator of your own.", "GB"),
    "mfu": Option(
        "MFU", "Share of peak speed that training reaches.", metavar="SHARE", default=str(DEFAULT_MFU)
    ),
    "price": Option(
        "$ per GPU-hour", "Price per GPU-hour.", metavar="USD", default="an indicative list price"
    ),
    "members": Option(
        "Members",
        "Models whose probabilities are averaged: a number such as 8, or auto for as many as are best.",
        metavar="K|auto",
        default="1",
    ),
    "serve_tokens": Option(
        "Tokens to serve",
        "Tokens that the model is going to serve: 1e12, 1T. The ceiling is then for training and serving.",
        metavar="TOKENS",
    ),
    "serve_price": Option(
        "$ per GPU-hour of serving",
        "Price per GPU-hour of serving.",
        metavar="USD",
        default="that of training",
    ),
    "serve_mfu": Option(
        "MFU of serving",
        "Share of peak speed that serving reaches.",
        metavar="SHARE",
        default="that of training",
    ),
    "data_price": Option(
        "$ per token",
        "What one more unique token costs: 2e-6. Data may then be bought from the same money (‹gpu›).",
        metavar="USD",
    ),
    "weight_decay": Option(
        "Weight decay",
        "The weight decay you are committed to.",
        metavar="λ",
        default="best of those calibrated",
    ),
    "learning_rate": Option(
        "Learning rate",
        "Your peak learning rate: ‹weight_decay› is then yours, and the plan says its own in your recipe.",
        metavar="η",
        default="the calibration's",
    ),
    "batch_tokens": Option(
        "Tokens per step",
        "Your batch in tokens (sequences x length), for the same.",
        metavar="TOKENS",
        default="the calibration's",
    ),
    "law": Option(
        "Law",
        f"Law form: {', '.join(FORMS)}.",
        metavar="NAME",
        default=f"the calibration's, usually {DEFAULT_FORM}",
    ),
    "calibration": Option(
        "Calibration",
        "Shipped calibration or a file from `planner calibrate fit`; for a plan also auto: the shipped one "
        "that knows the question best.",
        metavar="NAME|FILE",
        default=DEFAULT_CALIBRATION,
    ),
    "epochs": Option(
        "Epochs are",
        f"{WHOLE}, {CONTINUOUS_EPOCHS} (the exact optimum), or how many you are committed to: 10.",
        metavar="E",
        default=WHOLE,
    ),
    "params": Option("Model size", "The size of the model you have: epochs and weight decay for it.", "N"),
    "min_params": Option("Smallest model", "Smallest model allowed.", "N"),
    "max_params": Option("Largest model", "Largest model allowed, such as 3B.", "N"),
    "min_epochs": Option("Fewest epochs", "Fewest epochs allowed.", "E"),
    "max_epochs": Option("Most epochs", "Most epochs allowed.", "E"),
    "spend": Option(
        "Compute is",
        "A ceiling, of which only what helps is spent, or to be spent whole.",
        default=CEILING,
        choices=(CEILING, ALL),
    ),
    "extrapolate": Option(
        "Far from all evidence",
        "Ask the bare law, however far its answer is from all that was trained.",
        is_flag=True,
    ),
    "tolerance": Option(
        "Tolerance", "How much worse than the best still counts as good.", metavar="NATS", default="0.01"
    ),
    "vocab_size": Option(
        "Vocabulary",
        "Vocabulary size of the model shape: 32100, 128k.",
        metavar="ROWS",
        default="the calibration's",
        flag="--vocab",
        also=("vocab", "vocab_size"),
    ),
}
RECIPE = ("learning_rate", "batch_tokens")
LIMITS = ("epochs", "min_params", "max_params", "min_epochs", "max_epochs", "spend")
MONEY = ("budget_usd", "price", "tflops", "memory")
TOTAL = ("members", "serve_tokens", "serve_price", "serve_mfu", "data_price")
HARDWARE = ("gpu", "gpus", "hours", "mfu")


def label(name: str) -> str:
    """What a page calls an input."""
    return OPTIONS[name].label if name in OPTIONS else name
