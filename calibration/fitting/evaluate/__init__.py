"""How good fitted laws are: backtests, extrapolation splits, and two settings compared."""
