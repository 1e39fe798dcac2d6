"""One run from its configuration to `result.json`, whatever happens on the way.

loop.py         the run itself, top to bottom
directory.py    the folder it lives in: whose it is, and whether it is done
device.py       where and how it computes
distributed.py  several processes as one
launcher.py     they end with torchrun
checkpoints.py  its state on disk
prefetch.py     rows on their way to the device
readings.py     loss and norm of a step, read without waiting
evaluation.py   validation loss
store.py        the same on object storage
estimate.py     what it would take, without training
watch.py        metrics and progress
result.py       what it leaves behind
export.py       a finished run for other libraries
"""
