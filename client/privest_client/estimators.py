"""What can be estimated: written by `make openapi` from openapi.yaml. Do not edit."""

from abc import ABC, abstractmethod
from typing import Any

from privest_client import answers, models
from privest_client.answers import Kind

KINDS = {
    kind.name: kind
    for kind in (
        Kind(
            "frechet-mean",
            models.FrechetMeanRequest,
            models.FrechetMeanPlanView,
            models.FrechetMeanJob,
            answers.FrechetMean,
        ),
        Kind(
            "robust-pca",
            models.RobustPCARequest,
            models.RobustPCAPlanView,
            models.RobustPCAJob,
            answers.Subspace,
        ),
        Kind(
            "matrix-completion",
            models.MatrixCompletionRequest,
            models.MatrixCompletionPlanView,
            models.MatrixCompletionJob,
            answers.Completion,
        ),
        Kind(
            "logistic-regression",
            models.LogisticRegressionRequest,
            models.LogisticRegressionPlanView,
            models.LogisticRegressionJob,
            answers.LinearClassifier,
        ),
        Kind(
            "classifier-score",
            models.ClassifierScoreRequest,
            models.ClassifierScorePlanView,
            models.ClassifierScoreJob,
            answers.Score,
        ),
    )
}


class Estimates(ABC):
    """A method for each estimator."""

    @abstractmethod
    def estimate(self, kind: str, dataset: Any, *, epsilon: float, **choices: Any) -> Any:
        """An estimate of any kind."""

    def frechet_mean(
        self, dataset: Any, *, epsilon: float, **choices: Any
    ) -> answers.FrechetMean:
        """The private Fréchet mean of points on a manifold; see `estimate` for the arguments of all.

        Keyword Args:
            reuse: give an earlier answer of yours to the same question again, free of charge; True
                or False; by default True.
            start: first iterate, as nested lists; the public centre by default; a list; optional.
            clip: C₀, the distance by which one record pulls at most; the public radius by default;
                a number above 0 and at most 1e6; optional.
            step_size: η of every step; a number above 0 and at most 100; optional.
            steps: number of steps; of `rsvrg` in an epoch; a whole number at least 1; optional.
            solver: full gradients (`rgd`), random batches (`rsgd`), or both (`rsvrg`); by default
                full gradients; one of rgd, rsgd, rsvrg; optional.
            rate: probability of a record in a batch; a number above 0 and at most 1; optional.
            sampling: how batches are drawn; one of poisson, fixed; by default poisson.
            epochs: of `rsvrg`: number of epochs, S; a whole number at least 1; optional.
            restarts: of `rsvrg`: number of restarts, K; a whole number at least 1; optional.
            clip_change: of `rsvrg`: C₁, bound on a record's change of gradient in an epoch; C₀ by
                default; a number above 0 and at most 1e6; optional.
            full_noise: of `rsvrg`: noise on full gradients once an epoch, or at every step; one of
                epoch, step; by default epoch.
            local_steps: that each owner of several datasets takes by itself in a step, corrected
                for its drift; a whole number at least 1; by default 1.
        """
        return self.estimate(
            "frechet-mean", dataset, epsilon=epsilon, **choices
        )

    def robust_pca(
        self, dataset: Any, *, rank: int, epsilon: float, **choices: Any
    ) -> answers.Subspace:
        """The private subspace that most rows lie near; see `estimate` for the arguments of all.

        Keyword Args:
            reuse: give an earlier answer of yours to the same question again, free of charge; True
                or False; by default True.
            rank: dimension of the subspace; a whole number at least 1.
            loss: of a row's distance d: `absolute` d, `squared` d² (PCA), `bounded` d²/(c²+d²),
                `redescending` like d up to c and flat beyond; one of absolute, squared, bounded,
                redescending; by default redescending.
            solver: full gradients (`ggd`), random batches (`sggd`), or descents over a convex
                relaxation of the subspace to a matrix; one of ggd, sggd, gd-reaper, sgd-reaper,
                md-reaper, smd-reaper; by default ggd.
            start: a public random subspace, or the leading one of a noisy second moment or sketch;
                one of random, analyze-gauss, sketch; optional.
            consensus: choose the start, by a bounded loss, among subspaces of one with a dimension
                more; True or False; optional.
            center: estimate a centre within `norm_bound` and take it off the rows; True or False;
                by default False.
            steps: of the descent; a whole number at least 1; optional.
            step_size: of its first step; a number above 0 and at most 1000; optional.
            scale: c of the losses `bounded` and `redescending`, as a share of a row's length; a
                number above 0 and at most 1000; optional.
            rate: probability of a record in a batch; a number above 0 and at most 1; optional.
            sampling: how batches are drawn; one of poisson, fixed; by default poisson.
            local_steps: that each owner of several datasets takes by itself in a step, corrected
                for its drift; a whole number at least 1; by default 1.
            explained: estimate also the share of variance along each direction, for 5 % of the
                budget; True or False; by default False.
        """
        return self.estimate(
            "robust-pca", dataset, rank=rank, epsilon=epsilon, **choices
        )

    def matrix_completion(
        self, dataset: Any, *, rank: int, epsilon: float, **choices: Any
    ) -> answers.Completion:
        """The private subspace of rows with unknown entries; see `estimate` for the arguments of all.

        Keyword Args:
            reuse: give an earlier answer of yours to the same question again, free of charge; True
                or False; by default True.
            rank: dimension of the subspace; a whole number at least 1.
            steps: of the descent; a whole number at least 1; optional.
            step_size: of its longest step; a number above 0 and at most 1000; optional.
            local_steps: that each owner of several datasets takes by itself in a step, corrected
                for its drift; a whole number at least 1; by default 1.
        """
        return self.estimate(
            "matrix-completion", dataset, rank=rank, epsilon=epsilon, **choices
        )

    def logistic_regression(
        self, dataset: Any, *, epsilon: float, **choices: Any
    ) -> answers.LinearClassifier:
        """A private linear classifier of labelled records; see `estimate` for the arguments of all.

        Keyword Args:
            reuse: give an earlier answer of yours to the same question again, free of charge; True
                or False; by default True.
            solver: `newton` (noisy moments, then noisy gradients if there are records enough),
                `clipped` (descent on clipped gradients), or a descent: `gd`, `hb` (heavy ball),
                `nag` (Nesterov), `masg` (that in stages of shrinking steps), of which `nag-opt` and
                `masg-opt` divide the noise and count the steps by the bound on their error; by
                default `newton` where there are records enough, else `clipped`. With another loss
                than `logistic` it is `escape`, or `spider` if it is asked for, which sees each
                record once and has its guarantee where there are very many; one of newton, clipped,
                escape, spider or one of gd, hb, nag, nag-opt, masg, masg-opt; optional.
            penalty: λ of λ|w|², for features in units of the norm bound: by default 0 for `newton`
                and 0.01 for descents; with `logistic-nonconvex` of λ Σ w²/(1 + w²), by default
                0.001; not of `clipped` nor of the bounded losses; a number at least 0 and at most
                1e6; optional.
            steps: of a descent; with `-opt` the most of them; a whole number at least 1; optional.
            step_scale: c of step lengths c/L; a number above 0 and at most 1; optional.
            batch_size: of a descent's random batches, expected or exact; by default all records; a
                whole number at least 1; optional.
            intercept: whether there is one; True or False; by default True.
            standardisation: of features, by the schema's `mean` and `scale`; `private` takes these
                for the middle and half the width of bounds, and a fifth of the budget to learn
                better ones; one of public, private; by default public.
            sampling_errors: learn what the sampling of rows adds to the errors: with `newton` that
                is known in any case, of other solvers it takes a fifth of the budget; True or
                False; by default False.
            loss: `sigmoid` and `savage` are bounded, so that a wrong label cannot pull for ever;
                `logistic-nonconvex` has a bounded penalty; these three are for two classes; one of
                logistic or one of sigmoid, savage, logistic-nonconvex; by default logistic.
        """
        return self.estimate(
            "logistic-regression", dataset, epsilon=epsilon, **choices
        )

    def classifier_score(
        self, dataset: Any, *, coefficients: Any, intercept: Any, epsilon: float, **choices: Any
    ) -> answers.Score:
        """The private accuracy, or area under the ROC curve, of a submitted linear classifier; see `estimate` for the arguments of all.

        Keyword Args:
            reuse: give an earlier answer of yours to the same question again, free of charge; True
                or False; by default True.
            coefficients: a number for each feature; with more than two classes a list for each
                class; a list.
            intercept: a number; with more than two classes one for each class; a number or a list.
            metric: share of right answers, or area under the ROC curve of two classes; one of
                accuracy, auc; by default accuracy.
        """
        return self.estimate(
            "classifier-score", dataset, coefficients=coefficients, intercept=intercept, epsilon=epsilon, **choices
        )


class AsyncEstimates(ABC):
    """As `Estimates`, in an event loop."""

    @abstractmethod
    async def estimate(self, kind: str, dataset: Any, *, epsilon: float, **choices: Any) -> Any:
        """An estimate of any kind."""

    async def frechet_mean(
        self, dataset: Any, *, epsilon: float, **choices: Any
    ) -> answers.FrechetMean:
        """See `Client.frechet_mean`."""
        return await self.estimate(
            "frechet-mean", dataset, epsilon=epsilon, **choices
        )

    async def robust_pca(
        self, dataset: Any, *, rank: int, epsilon: float, **choices: Any
    ) -> answers.Subspace:
        """See `Client.robust_pca`."""
        return await self.estimate(
            "robust-pca", dataset, rank=rank, epsilon=epsilon, **choices
        )

    async def matrix_completion(
        self, dataset: Any, *, rank: int, epsilon: float, **choices: Any
    ) -> answers.Completion:
        """See `Client.matrix_completion`."""
        return await self.estimate(
            "matrix-completion", dataset, rank=rank, epsilon=epsilon, **choices
        )

    async def logistic_regression(
        self, dataset: Any, *, epsilon: float, **choices: Any
    ) -> answers.LinearClassifier:
        """See `Client.logistic_regression`."""
        return await self.estimate(
            "logistic-regression", dataset, epsilon=epsilon, **choices
        )

    async def classifier_score(
        self, dataset: Any, *, coefficients: Any, intercept: Any, epsilon: float, **choices: Any
    ) -> answers.Score:
        """See `Client.classifier_score`."""
        return await self.estimate(
            "classifier-score", dataset, coefficients=coefficients, intercept=intercept, epsilon=epsilon, **choices
        )
