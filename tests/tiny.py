"""The text of a study of four runs that nobody has to wait for, for tests that read a study or plan one."""

from __future__ import annotations

GRID = """
[recipe]
preset = "micro"
corpus = { paths = "text.txt", separator = "\\n\\n" }
tokenizer = "bytes"
sequence_length = 32
validation_documents = 3
compile = "off"
[[grid]]
params = ["12k"]
unique_tokens = [1024]
epochs = [1, 2]
weight_decays = [0.1, 1.0]
"""


def study(title: str, validation: str) -> str:
    """A file of a study, with what its section of prescriptions says."""
    return f'title = "{title}"\n{GRID}[validation]\n{validation}'
