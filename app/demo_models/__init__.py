"""The small trained models that come with the package, each in a folder of its own.

`python -m workers.demo_models.train NAME` makes them; the README in each folder says how, and
which bias is in it.
"""

from pathlib import Path

DEMO_MODELS_DIR = Path(__file__).parent
DEMO_MODELS = ("tiny-bert", "tiny-llama")
