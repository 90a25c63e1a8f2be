"""Robust PCA and matrix completion by default beside textbook mechanisms, within rough public bounds.

The textbook of PCA is Analyze Gauss (Dwork et al. 2014): one noisy second moment by the exact Gaussian
mechanism, of the same scaled rows. It has to release the means too, and spends half of the budget on either.
Both are measured beside the subspace about the exact means. The PCA of diffprivlib has δ = 0, and runs in its
own environment on these rows too, about means that it is given.
"""

from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import product
from math import sqrt
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from scipy.stats import binom

from benchmarks.ordinary_classifiers import Question
from benchmarks.peers import call
from benchmarks.real_table import Half
from benchmarks.report import publish, table
from benchmarks.robust_pca import haystack, squared_distance
from benchmarks.tables import tables
from privest.arrays import Array
from privest.data.metadata import PartialVectorsMetadata, VectorsMetadata
from privest.data.records import Records
from privest.data.table_metadata import TableChoice, TableMetadata, metadata_for
from privest.data.tables import Column
from privest.estimators.subspace import matrix_completion, robust_pca
from privest.estimators.subspace.completion_means import Completed
from privest.estimators.subspace.matrix_completion import MatrixCompletionSpec
from privest.estimators.subspace.robust_pca import RobustPCASpec
from privest.estimators.subspace.robust_pca_plan import Subspace
from privest.estimators.subspace.spherical import on_sphere
from privest.privacy.accounting import PrivacyTarget, mu_for
from privest.privacy.gate import Gate
from testing.noise import ScaledNoise

RUNS, TEXTBOOK_RUNS, PEER_RUNS, RANKS, EPSILONS = 30, 150, 3, (1, 2, 3), (0.3, 1.0, 3.0)

_WIDEST_PEER = 8
"""Most columns for which diffprivlib is run: it samples directions slowly."""

ERROR, COVERAGE = 1.1, 0.93
_CHANCE = 0.01
"""A line is short of coverage if chance leaves so few runs covered in less than this share of lines."""

HEADER = (
    *("table", "columns", "rank", "ε", "ours", "Analyze Gauss", "ratio"),
    *("named", "coverage", "width", "robust", "warned"),
)


@dataclass(frozen=True)
class Asked:
    """A question for the leading subspace of a table.

    Attributes:
        name: of the table.
        rows: (n, d), in the columns' units.
        columns: what the schema declares.
        rank: r.
        epsilon: ε.
    """

    name: str
    rows: Array
    columns: tuple[Column, ...]
    rank: int
    epsilon: float

    @property
    def target(self) -> PrivacyTarget:
        """ε with δ = n^-1.5."""
        return PrivacyTarget(self.epsilon, len(self.rows) ** -1.5)

    @property
    def metadata(self) -> VectorsMetadata:
        """Public facts."""
        found = metadata_for(VectorsMetadata, TableMetadata(len(self.rows), self.columns), TableChoice())
        assert isinstance(found, VectorsMetadata)
        return found

    @property
    def images(self) -> Array:
        """(n, features) rows in halves of their bounds."""
        recipe = self.metadata.recipe
        assert recipe is not None
        return recipe(self.rows)

    @property
    def scaled(self) -> Array:
        """(n, features) rows of length one about their exact means."""
        return on_sphere(self.images, self.images.mean(axis=0))

    def answers(self, runs: int, shape: VectorsMetadata | None = None) -> list[Subspace]:
        """Return answers by default, of the table or of rows of another shape."""
        shape = shape or self.metadata
        planned = robust_pca.plan(RobustPCASpec(self.rank), shape, self.target)
        records = Records(self.rows, 1, recipe=shape.recipe)
        gates = (
            Gate(records, planned.statistics, planned.releases, ScaledNoise(seed=[93, run]))
            for run in range(runs)
        )
        return [robust_pca.run(planned, gate) for gate in gates]

    def analyze_gauss(self, scaled: Array, rng: np.random.Generator, share: float = 1.0) -> Array:
        """Return the basis of one noisy moment of (n, features) rows on the sphere.

        Args:
            scaled: the rows.
            rng: of the noise.
            share: of the budget.
        """
        n, dim = scaled.shape
        noise = sqrt(2 / share) / (n * mu_for(self.target.epsilon, self.target.delta))
        half = np.triu(rng.standard_normal((dim, dim)), 1) * noise / sqrt(2)
        noisy = scaled.T @ scaled / n + half + half.T + noise * np.diag(rng.standard_normal(dim))
        return np.linalg.eigh(noisy)[1][:, ::-1][:, : self.rank]

    def two_halves(self, rng: np.random.Generator) -> Array:
        """Return the basis about noisy means, each for half of the budget."""
        images, recipe = self.images, self.metadata.recipe
        assert recipe is not None
        noise = sqrt(2) * recipe.diameter / (len(images) * mu_for(self.target.epsilon, self.target.delta))
        center = np.clip(images.mean(axis=0) + rng.normal(0, noise, images.shape[1]), -1, 1)
        return self.analyze_gauss(on_sphere(images, center), rng, 0.5)


def leading(rows: Array, rank: int) -> Array:
    """Return (dim, rank) leading eigenvectors of a second moment, without noise."""
    return np.linalg.eigh(rows.T @ rows)[1][:, ::-1][:, :rank]


def tells_little(found: Subspace) -> bool:
    """Return whether an answer warns that noise leaves directions open, or decides them."""
    assert found.uncertainty is not None
    return any(
        "leaves open" in said or "noise on the released" in said for said in found.uncertainty.warnings
    )


def line(asked: Asked) -> list[str]:
    """Return the line of a question."""
    images, rank, rng = asked.images, asked.rank, np.random.default_rng(94)
    exact = leading(asked.scaled, rank)
    found = asked.answers(RUNS)
    plain = [each for each in found if each.uncertainty and "redescending" not in each.uncertainty.of]
    numbers = ["–"] * 6
    if plain:
        ours = float(np.mean([squared_distance(exact, each.basis) for each in plain]))
        theirs = [squared_distance(exact, asked.two_halves(rng)) for _ in range(TEXTBOOK_RUNS)]
        off = [squared_distance(leading(on_sphere(images, at.center), rank), at.basis) for at in plain]
        radii = [each.uncertainty.radius_95 for each in plain if each.uncertainty]
        numbers = [f"{ours:.1e}", f"{np.mean(theirs):.1e}", f"{ours / np.mean(theirs):.2f}"]
        numbers += [f"{np.mean(off):.1e}", f"{np.mean(np.sqrt(off) <= radii):.2f}"]
        numbers.append(f"{np.median(radii) / sqrt(np.quantile(off, 0.95)):.2f}")
    return [
        *(asked.name, str(images.shape[1]), str(rank), f"{asked.epsilon:g}", *numbers),
        *(f"{1 - len(plain) / RUNS:.2f}", f"{np.mean(list(map(tells_little, found))):.2f}"),
    ]


def questions(half: Half) -> list[Asked]:
    """Return the questions of a half."""
    shown = [Question.of(each) for each in tables(half, labelled=True)]
    return [
        Asked(each.name, each.rows, each.columns, rank, epsilon)
        for each in shown
        for rank in RANKS
        if rank < each.rows.shape[1]
        for epsilon in EPSILONS
    ]


def diffprivlib(asked: Sequence[Asked]) -> tuple[str, list[str]]:
    """Return its version, and its mean squared error of each question, – where it is left out."""
    chosen = [at for at, each in enumerate(asked) if each.rows.shape[1] <= _WIDEST_PEER]
    with TemporaryDirectory() as folder:
        paths = [Path(folder) / f"{at}.npz" for at in chosen]
        for path, at in zip(paths, chosen, strict=True):
            each = asked[at]
            np.savez(path, x=each.scaled, rank=each.rank, epsilon=each.epsilon, runs=PEER_RUNS)
        told: dict[str, Any] = call("subspaces.py", *paths)
    found = ["–"] * len(asked)
    for at, bases in zip(chosen, told["found"], strict=True):
        exact = leading(asked[at].scaled, asked[at].rank)
        errors = [squared_distance(exact, np.linalg.qr(np.array(basis).T)[0]) for basis in bases]
        found[at] = f"{np.mean(errors):.1e}"
    return told["version"], found


def haystacks() -> str:
    """Return the table of rows of which a part lies in a subspace, and the others have no direction."""
    lines = list[list[str]]()
    for n, dim, rank, inliers in ((10_000, 50, 3, 0.3), (2_000, 20, 2, 0.5), (20_000, 20, 2, 0.3)):
        truth, rows = haystack(np.random.default_rng(95), n, dim, rank, inliers)
        far = float(np.abs(rows).max())
        columns = tuple(Column(f"x{at}", "number", -far, far) for at in range(dim))
        for bounds, epsilon in product((False, True), (1.0, 3.0)):
            asked = Asked("haystack", rows, columns, rank, epsilon)
            shape = asked.metadata if bounds else VectorsMetadata(n, dim)
            found = asked.answers(RUNS, shape)
            kept = np.mean(
                [each.uncertainty is not None and "redes" in each.uncertainty.of for each in found]
            )
            errors = [float(np.mean([squared_distance(truth, each.basis) for each in found]))]
            rng, scaled = np.random.default_rng(98), on_sphere(rows)
            theirs = [asked.two_halves(rng) if bounds else asked.analyze_gauss(scaled, rng) for _ in found]
            errors.append(float(np.mean([squared_distance(truth, each) for each in theirs])))
            errors.append(squared_distance(truth, leading(scaled, rank)))
            said = [f"{n:,}×{dim}", f"{inliers:.0%}", str(rank), f"±{far:.0f}" if bounds else "none"]
            lines.append([*said, f"{epsilon:g}", *(f"{each:.1e}" for each in errors), f"{kept:.2f}"])
    header = (
        "rows",
        "inliers",
        "rank",
        "bounds",
        "ε",
        "ours",
        "Analyze Gauss",
        "PCA without noise",
        "robust",
    )
    return table(header, lines)


def completions() -> str:
    """Return the table of completions of ratings of 1 to 5 stars."""
    n, dim, lines = 5_000, 30, list[list[str]]()
    rng = np.random.default_rng(96)
    exact = 3.4 + 0.5 * rng.standard_normal(dim) + 0.4 * rng.standard_normal((n, 1))
    exact += 0.45 * rng.standard_normal((n, 2)) @ rng.standard_normal((2, dim))
    whole = np.clip(np.round(exact + 0.7 * rng.standard_normal((n, dim))), 1, 5)
    known = rng.random((n, dim)) < 0.34
    columns = tuple(Column(f"i{at}", "number", 1.0, 5.0, missing="filled", fill=3.0) for at in range(dim))
    shape = metadata_for(PartialVectorsMetadata, TableMetadata(n, columns), TableChoice())
    assert isinstance(shape, PartialVectorsMetadata)
    records = Records(np.where(known, whole, np.nan), 1, recipe=shape.recipe)
    values, mask = np.where(known, (whole - 3) / 2, 0.0), known.astype(np.float64)
    for rank in (2, 3):
        for epsilon in (*EPSILONS, 100.0):
            planned = matrix_completion.plan(
                MatrixCompletionSpec(rank), shape, PrivacyTarget(epsilon, n**-1.5)
            )
            told, warned = list[list[float]](), 0
            for run in range(10):
                gate = Gate(records, planned.statistics, planned.releases, ScaledNoise(seed=[97, run]))
                found = matrix_completion.run(planned, gate)
                assert found.centers is not None
                assert found.ridge is not None
                assert found.held_out_error is not None
                assert found.column_means_error is not None
                assert found.uncertainty is not None
                fit = 3 + 2 * Completed(found.centers, found.basis, found.ridge).values(values, mask)
                means = 3 + 2 * found.centers
                errors = [float(np.sqrt(np.mean((each - whole)[~known] ** 2))) for each in (fit, means)]
                told.append([*errors, 2 * found.held_out_error, 2 * found.column_means_error])
                warned += any("not seen to be" in said for said in found.uncertainty.warnings)
            numbers = np.median(told, axis=0)
            ratio = f"{numbers[0] / numbers[1]:.2f}"
            said = [f"{each:.3f}" for each in numbers]
            lines.append([str(rank), f"{epsilon:g}", *said[:2], ratio, *said[2:], f"{warned / 10:.1f}"])
    header = ("rank", "ε", "completed", "column means", "ratio", "stated", "stated of means", "warned")
    return table(header, lines)


def main() -> None:
    """Measure both halves, and publish them."""
    told, version, at = list[str](), "", HEADER.index("ratio")
    header = (*HEADER[: at + 1], "diffprivlib", *HEADER[at + 1 :])
    halves: dict[Half, str] = {
        "TUNE": "Constants were chosen on these",
        "FINAL": "Constants were chosen on others",
    }
    few = int(binom.ppf(_CHANCE, RUNS, 0.95))
    for half, title in halves.items():
        asked = questions(half)
        with ProcessPoolExecutor(2) as pool:
            measured = list(pool.map(line, asked))
        version, theirs = diffprivlib(asked)
        missing = [each for each in measured if each[at] != "–" and float(each[at]) > ERROR]
        quiet = sum(float(each[-1]) < 0.5 for each in missing)
        numbers = np.array([[float(cell) for cell in each[at:-2]] for each in measured if each[at] != "–"])
        ratio, _, _, width = np.median(numbers, axis=0)
        mean, covered = np.exp(np.mean(np.log(numbers[:, 0]))), numbers[:, 2]
        lines = [[*m[: at + 1], d, *m[at + 1 :]] for m, d in zip(measured, theirs, strict=True)]
        told.append(
            f"### {title}\n\n{len(missing)} of {len(numbers)} ratios exceed {ERROR}, {quiet} of them "
            f"where most answers do not warn; the median is {ratio:.2f}, the geometric mean {mean:.2f}. "
            f"All answers together cover in {covered.mean():.3f}; {(covered * RUNS < few).sum()} lines are "
            f"below .95 by more than chance. The median width is {width:.2f}.\n\n{table(header, lines)}"
        )
    body = f"""
Mean squared errors (sums of squared principal angles) in {RUNS} runs a line, δ = n^-1.5, at most 10,000 rows.
*Ours* and *Analyze Gauss* are errors beside the principal subspace of rows whose columns are divided by half
their declared range, and that are divided by their length about the exact means. Analyze Gauss is one noisy
moment of rows about noisy means, with half of the budget for either. The target of the *ratio* is {ERROR}; by
chance it varies by a fifth and more in a line. *diffprivlib* is its PCA of the rows about their exact means,
which it is given; version {version}, δ = 0, {PEER_RUNS} runs, up to {_WIDEST_PEER} columns.

What an answer names, and its `radius_95` is about, is the subspace about the *released* means: *named* is the
error beside that. *Coverage* is that of `radius_95`; its target is {COVERAGE}, and by chance a line has
fewer than {few} of {RUNS} in one of a hundred. *Width* is the median radius over the .95 quantile of the
errors, which only the rows tell. The answer says in words how large the noise on the means is. *Robust* is
the share of answers with a robust loss, which are in no figure but the last. *Warned* is the share that say
that noise leaves directions open or decides them.

{chr(10).join(told)}

### Haystacks

Part of the rows lie in a subspace, and the others have no direction: vectors without bounds, which have no
means to release, and tables whose bounds are the largest value of any column. Errors are about the true
subspace, so that one far below Analyze Gauss shows that the robust loss is kept.

{haystacks()}

### Completion of ratings

5,000 rows of 30 ratings from 1 to 5, with item and row means and two factors, of which 34 % are known;
medians of 10 runs. *Completed* and *column means* are root mean square errors, in stars, on the entries
that are not known, of the completion and of the released means alone. *Stated* are the answer's own
errors, on known entries that were held out. *Warned* is the share of answers that do not see the
completion to be better.

{completions()}
"""
    publish("ordinary-subspaces", "Subspaces of ordinary tables", body)


if __name__ == "__main__":
    main()
