"""What is trained and how a step changes it: pure computation that knows neither files nor devices' names.

llama.py              the model and its first weights
attention.py          causal attention, by the fastest means there is
products.py           matrix products on a CPU, by the faster of two libraries
loss.py               output head and cross entropy, never with all logits at once
distillation_loss.py  what an ensemble teaches, mixed into it
optimizer.py          AdamW, which tensors decay, and the learning rate of each step
"""
