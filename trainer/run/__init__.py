"""One run from its configuration to `result.json`, whatever happens on the way; begin with loop.py."""
