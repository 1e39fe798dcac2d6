"""The advisor: from unique tokens, compute and weight decay to model size, epochs and crossover.

    >>> from planner import plan
    >>> p = plan(ud=250e6, flops=5e18)
    >>> p.weight_decay, round(p.params / 1e6), p.epochs
    (1.0, 556, 6.0)

Numbers only: importing this package loads numpy and pydantic, nothing heavier.
"""
