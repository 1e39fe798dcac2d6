"""Trains one run: a Llama-2 model on packed data with exact epochs, and returns its validation loss."""
