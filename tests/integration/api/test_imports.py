"""The service starts without what only the workers need."""

import subprocess
import sys

BLOCKED = (
    "torch",
    "transformers",
    "sklearn",
    "numpy",
    "scipy",
    "matplotlib",
    "safetensors",
    "workers",
)
PROGRAM = f"""
import sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {BLOCKED!r}:
            raise ImportError(name + " must not be imported by the service")

sys.meta_path.insert(0, Blocker())
from app.main import create_app
from app.settings import Settings
assert create_app(Settings(_env_file=None)).openapi()["paths"]
"""


def test_application_needs_no_numeric_package() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True)

    assert done.returncode == 0, done.stderr
