"""Ways to label items with an imperfect model, for `benchmarks/answers.py`."""
