"""Run tables: reading them from wherever people have them, which column is which, and checks."""
