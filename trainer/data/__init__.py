"""From text to batches: what a run learns from, and in which order."""
