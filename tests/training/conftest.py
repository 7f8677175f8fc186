"""TRL and datasets as trainers use them, offline; without the packages nothing is tested."""

import importlib.util
import os

HAS_TRL = importlib.util.find_spec("trl") is not None
collect_ignore = [] if HAS_TRL else ["test_with_trl.py"]

os.environ |= {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error"}
