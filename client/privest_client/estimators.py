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
        """The private Fréchet mean of points on a manifold; see `estimate`."""
        return self.estimate(
            "frechet-mean", dataset, epsilon=epsilon, **choices
        )

    def robust_pca(
        self, dataset: Any, *, rank: int, epsilon: float, **choices: Any
    ) -> answers.Subspace:
        """The private subspace that most rows lie near; see `estimate`."""
        return self.estimate(
            "robust-pca", dataset, rank=rank, epsilon=epsilon, **choices
        )

    def matrix_completion(
        self, dataset: Any, *, rank: int, epsilon: float, **choices: Any
    ) -> answers.Completion:
        """The private subspace of rows with unknown entries; see `estimate`."""
        return self.estimate(
            "matrix-completion", dataset, rank=rank, epsilon=epsilon, **choices
        )

    def logistic_regression(
        self, dataset: Any, *, epsilon: float, **choices: Any
    ) -> answers.LinearClassifier:
        """A private linear classifier of labelled records; see `estimate`."""
        return self.estimate(
            "logistic-regression", dataset, epsilon=epsilon, **choices
        )

    def classifier_score(
        self, dataset: Any, *, coefficients: Any, intercept: Any, epsilon: float, **choices: Any
    ) -> answers.Score:
        """The private accuracy, or area under the ROC curve, of a submitted linear classifier; see `estimate`."""
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
