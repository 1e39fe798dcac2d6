"""What is trained and how a step changes it: computation that knows neither files nor devices' names."""
