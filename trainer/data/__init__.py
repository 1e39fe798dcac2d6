"""From text to batches: what a run learns from, and in which order.

corpus.py      documents, from files or a dataset
holdout.py     which of them are held out, and proof that training text does not repeat them
shuffle.py     documents in the order of their content, without holding them in memory
tokenizers.py  text to token numbers and back
tokenize.py    a corpus tokenised shard by shard
tokens.py      a corpus as token files that every run on it shares
checksums.py   what files held when they were last read
batches.py     which tokens are in which row of which step
"""
