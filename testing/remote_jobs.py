"""What tests of engines have done by other processes: functions of the form that jobs have."""

import json
import os
import resource
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from privest.data.metadata import DatasetMetadata, LabelledMetadata, PointsMetadata, VectorsMetadata
from privest.data.records import Records
from privest.estimators.frechet_mean.losses import SquaredDistance
from privest.estimators.linear_model.feature_map import FeatureMap
from privest.estimators.linear_model.losses.logistic import Classifier, LogisticGradient
from privest.estimators.subspace.losses import Redescending, SubspaceDistance, SubspaceQuery
from privest.manifolds import get
from privest.privacy.gate import ChunkSum
from privest_service.estimates import worker
from privest_service.estimates.tasks import OpenRows
from testing.server import HANG_GUARD

SPACING = 2.0**-30
SECRET = "row-value-4711"  # noqa: S105
"""A row's value, which no log may hold."""

KEY = "key-of-the-service-4711"
"""A key that no other process may find."""


def _wait_for(found: Callable[[], bool]) -> None:
    deadline = time.monotonic() + HANG_GUARD
    while not found():
        if time.monotonic() > deadline:
            raise TimeoutError
        time.sleep(0.01)


def datasets() -> dict[str, tuple[DatasetMetadata, np.ndarray, list[ChunkSum]]]:
    """Rows of each kind, groups of them too, and sums that a gate would ask for."""
    rng = np.random.default_rng(5)
    spd = PointsMetadata(9000, {"name": "spd", "dim": 3})
    points = spd.dummy(9000, rng)
    groups = spd.dummy(27_000, rng).reshape(9000, 3, 3, 3)
    vectors = VectorsMetadata(30_000, 6)
    basis = np.linalg.qr(rng.standard_normal((6, 2)))[0]
    labelled = LabelledMetadata(30_000, ("a", "b"), "y", ("0", "1", "2"), 2.0, (0.0, 0.0), (1.0, 1.0))
    feature_map = FeatureMap.of(labelled, 2.0, intercept=True)
    loss = LogisticGradient(feature_map.size, 3)
    weights = rng.standard_normal(loss.shape)
    mean = ChunkSum(SquaredDistance(get("spd", dim=3)), points[0], 1.0, SPACING, False)
    group = ChunkSum(mean.statistic, mean.point, 1.0, SPACING, True)
    return {
        "points": (spd, points, [mean]),
        "groups": (spd, groups, [group]),
        "vectors": (
            vectors,
            rng.standard_normal((30_000, 6)),
            [ChunkSum(SubspaceDistance(6, 2), SubspaceQuery(basis, Redescending(0.3)), 1.0, SPACING, False)],
        ),
        "labelled": (
            labelled,
            labelled.dummy(30_000, rng),
            [ChunkSum(loss, Classifier(feature_map, weights), 1.0, SPACING, False)],
        ),
    }


def sums(directory: str, records: OpenRows | None = None) -> str:
    """The bits of all sums over the rows of `datasets` in a directory, in many small partitions."""
    if records:
        from privest_service.estimates import cluster

        cluster._PARTITION_BYTES, cluster._LEAST_CHUNKS = 1, 1
    told = {}
    for name, (shape, _, wanted) in datasets().items():
        opened = (records or worker.opened)(f"{directory}/{name}.npy", shape)
        assert opened.grouped == (name == "groups")
        if records:
            assert len(opened._ends) > 2  # pyright: ignore[reportAttributeAccessIssue]
        told[name] = [opened.sum(of_chunk).tobytes().hex() for of_chunk in wanted]
    return json.dumps(told)


def greedy(size: str, records: OpenRows | None = None) -> str:
    """Take this many bytes of memory."""
    return str(np.ones(int(size), dtype=np.uint8)[-1])


def frugal(path: str, records: OpenRows | None = None) -> str:
    """Sum many rows where they lie."""
    rows = worker.opened(path, VectorsMetadata(2**20, 128))
    return str(sum(rows.sum(np.sum, range(at, at + 1)) for at in (0, rows.chunks - 1)))


def explode(directory: str, records: OpenRows | None = None) -> str:
    """Fail, with what is secret in the error, in the arguments of what fails, and in a warning."""
    warnings.warn(SECRET, stacklevel=1)
    raise ValueError(SECRET, directory)


def leave(directory: str, records: OpenRows | None = None) -> str:
    """Fail with `SystemExit`, which is no `Exception`."""
    raise SystemExit(SECRET)


def explode_in_a_part(directory: str, records: OpenRows | None = None) -> str:
    """Have a part of a sum fail."""
    return str(_opened(records, f"{directory}/rows.npy").sum(Exploding(SECRET)))


def hang(directory: str, records: OpenRows | None = None) -> str:
    """Sum until it is refused, which a file tells; never return."""
    opened = _opened(records, f"{directory}/rows.npy")
    Path(directory, "begun").touch()
    try:
        while True:
            opened.sum(np.sum)  # pyright: ignore[reportArgumentType]
    except BaseException:
        Path(directory, "refused").touch()
        raise


def survive(directory: str, records: OpenRows | None = None) -> str:
    """Sum while another worker dies in the middle of its part."""
    opened = _opened(records, f"{directory}/rows.npy")
    return str(opened.sum(Deadly(os.getpid(), f"{directory}/bullet")))


def faults(_: str, records: OpenRows | None = None) -> str:
    """Pages that were faulted in, while blocks were summed as in a fresh process."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _round in range(200):
        block = np.ones(2**17)
        kept = [block + 1.0, block * 2.0, block - 1.0]
        del block, kept
    return str(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)


def pid(_: str, records: OpenRows | None = None) -> str:
    """Process id of the worker."""
    return str(os.getpid())


@dataclass(frozen=True)
class Unpickled:
    """What runs an expression where it is unpickled, and is then its value."""

    expression: str

    def __reduce__(self) -> tuple[Any, ...]:
        return eval, (self.expression,)


def writes_file(directory: str, records: OpenRows | None = None) -> Any:
    """Answer with what writes a file where it is unpickled."""
    return Unpickled(f"open({directory!r} + '/written', 'w').write('x')")


def begins_program(directory: str, records: OpenRows | None = None) -> Any:
    """Answer with what begins a program where it is unpickled."""
    return Unpickled(f"__import__('subprocess').check_output(['touch', {directory!r} + '/touched'])")


def tells_environment(_: str, records: OpenRows | None = None) -> Any:
    """Answer with the environment where this is unpickled."""
    return Unpickled("__import__('json').dumps(dict(__import__('os').environ))")


def tells_file(path: str, records: OpenRows | None = None) -> Any:
    """Answer with a file as it is read where this is unpickled."""
    return Unpickled(f"__import__('json').dumps(open({path!r}, errors='replace').read())")


def says(answer: str, records: OpenRows | None = None) -> str:
    """Answer with the argument."""
    return answer


def _opened(records: OpenRows | None, path: str) -> Records:
    from privest_service.estimates import cluster

    cluster._PARTITION_BYTES, cluster._LEAST_CHUNKS = 1, 1
    assert records
    return records(path, VectorsMetadata(8 * 4096, 1))


@dataclass(frozen=True)
class Exploding:
    """A statistic whose sum fails."""

    secret: str

    def __call__(self, chunk: np.ndarray) -> np.ndarray:
        raise ValueError(self.secret, chunk)


@dataclass(frozen=True)
class Deadly:
    """Counts rows, but kills the first process that is not the job's own."""

    job: int
    bullet: str

    def __call__(self, chunk: np.ndarray) -> np.ndarray:
        if os.getpid() == self.job:
            _wait_for(lambda: not Path(self.bullet).exists())
        else:
            try:
                Path(self.bullet).unlink()
            except FileNotFoundError:
                pass
            else:
                os.kill(os.getpid(), 9)
        return np.array([len(chunk)])


def waits(begun: str, until: str) -> None:
    """Until a file is there; without one, until what it made at its begin is gone."""
    Path(begun).touch()
    while not Path(until).exists() if until else Path(begun).exists():
        time.sleep(0.01)
