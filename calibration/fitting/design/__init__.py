"""Which runs to train next: for a plan, for a grid that is being planned, and for tuning a recipe."""
