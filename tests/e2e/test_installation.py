"""The wheel holds everything: it is installed into an empty folder and every module imported."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

from tests.e2e.conftest import ROOT

IMPORT_ALL = """
import importlib, pkgutil, sys
import starc
names = [module.name for module in pkgutil.walk_packages(starc.__path__, "starc.")]
for name in names:
    module = importlib.import_module(name)
    assert module.__file__.startswith(sys.argv[1]), (name, module.__file__)
assert {"starc.dialects.nn", "starc.passes.program.pack", "starc.targets.loader"} <= set(names)
from starc.targets.loader import (load_target)
from starc.frontend import load_model
load_target("mi300x-cpx")
load_model("model \\"m\\" { hidden = 8 }\\nlayer a(x) { return silu(x) }\\nstack { a }\\n"
           "phase decode { batch = 1, context = 1 }\\n")
"""


def test_every_module_of_the_wheel_can_be_imported(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(tmp_path), "."],
        cwd=copy_of_sources(tmp_path),
        check=True,
        capture_output=True,
    )
    (wheel,) = tmp_path.glob("starc-*.whl")
    site = tmp_path / "site"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
        names = archive.namelist()
    # Nothing named `dialects` or `passes` lands beside other people's packages.
    tops = {name.split("/")[0] for name in names}
    assert tops == {"starc", next(top for top in tops if top.endswith(".dist-info"))}
    # -I keeps the checkout off the path; the dependencies come from the environment's own folder.
    code = f"import sys; sys.path.insert(0, {str(site)!r})\n" + IMPORT_ALL
    done = subprocess.run(
        [sys.executable, "-I", "-c", code, str(site)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


def copy_of_sources(directory: Path) -> Path:
    """What a wheel is built from, elsewhere: a build writes beside it."""
    copy = directory / "sources"
    for name in ("starc", "dialects", "passes"):
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md"):
        shutil.copy(ROOT / name, copy / name)
    return copy
