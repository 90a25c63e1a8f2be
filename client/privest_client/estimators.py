"""What can be estimated: written by `make openapi` from openapi.yaml. Do not edit."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Literal

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
        Kind(
            "classifier-selection",
            models.ClassifierSelectionRequest,
            models.ClassifierSelectionPlanView,
            models.ClassifierSelectionJob,
            answers.SelectedClassifier,
        ),
        Kind(
            "bounds",
            models.BoundsRequest,
            models.BoundsPlanView,
            models.BoundsJob,
            answers.Bounds,
        ),
    )
}


class Estimates(ABC):
    """A method for each estimator."""

    @abstractmethod
    def estimate(self, kind: str, dataset: Any, *, epsilon: float, **choices: Any) -> Any:
        """An estimate of any kind."""

    def frechet_mean(
        self,
        dataset: Any,
        columns: Sequence[str] | None = None,
        *,
        epsilon: float,
        delta: float | None = None,
        key: str | None = None,
        timeout: float = 600.0,
        reuse: bool = True,
        tag: str | None = None,
        may_leave: int = 0,
        start: Any = None,
        clip: float | None = None,
        step_size: float | None = None,
        steps: int | None = None,
        solver: Literal['noisy-sum', 'clipped-sum', 'rgd', 'rsgd', 'rsvrg'] | None = None,
        rate: float | None = None,
        sampling: Literal['poisson', 'fixed'] = 'poisson',
        epochs: int | None = None,
        restarts: int | None = None,
        clip_change: float | None = None,
        full_noise: Literal['epoch', 'step'] = 'epoch',
        local_steps: int = 1,
        server_step: float = 1.0,
        diagnostics: bool = True,
    ) -> answers.FrechetMean:
        """The private Fréchet mean of points on a manifold; see `estimate` for the arguments of all.

        Args:
            dataset: as of `estimate`.
            epsilon: as of `estimate`.
            delta: as of `estimate`.
            key: as of `estimate`.
            timeout: as of `estimate`.
            reuse: give an earlier answer of yours to the same question again, free of charge; True
                or False; by default True.
            tag: words of yours, by which lists find the question again; owners of the data read
                them, and they change nothing else; a text; optional.
            may_leave: of several datasets at sites: so many sites may stay away once the run has
                begun. The answer then goes on without their records, and states no error; a whole
                number at least 0 and at most 99; by default 0.
            columns: of a table: names of the columns; by default all; a list; optional.
            start: first iterate, as nested lists; the public centre by default; a list; optional.
            clip: C₀, the distance by which one record pulls at most; by default `rgd` finds one in
                the run, and others take the public radius; a number above 0 and at most 1e6;
                optional.
            step_size: η of every step; a number above 0 and at most 100; optional.
            steps: number of steps; of `rsvrg` in an epoch; a whole number at least 1; optional.
            solver: of columns of a table one sum over their declared bounds (`noisy-sum`), by
                default with closer bounds where these surely win (`clipped-sum`); of other data
                full gradients (`rgd`, the default), random batches (`rsgd`), or both (`rsvrg`); one
                of noisy-sum, clipped-sum, rgd, rsgd, rsvrg; optional.
            rate: probability of a record in a batch; a number above 0 and at most 1; optional.
            sampling: how batches are drawn; one of poisson, fixed; by default poisson.
            epochs: of `rsvrg`: number of epochs, S; a whole number at least 1; optional.
            restarts: of `rsvrg`: number of restarts, K; a whole number at least 1; optional.
            clip_change: of `rsvrg`: C₁, bound on a record's change of gradient in an epoch; by
                default it and the loops are those of the least expected error, and C₀ with restarts
                or noise at every step; a number above 0 and at most 1e6; optional.
            full_noise: of `rsvrg`: noise on full gradients once an epoch, or at every step; one of
                epoch, step; by default epoch.
            local_steps: that each owner of several datasets takes by itself in a step, corrected
                for its drift; a whole number at least 1; by default 1.
            server_step: how far a round goes along the mean of the owners' own ways: larger ones
                shorten these, and leave the length of a round as it is; a number at least 0.01 and
                at most 1000; by default 1.0.
            diagnostics: whether to spend a tenth of the budget or two on how far the answer may be
                off; without it nothing is told of what the clip cuts off, and no clip is found;
                True or False; by default True.
        """
        return self.estimate(
            "frechet-mean",
            dataset,
            epsilon=epsilon,
            delta=delta,
            key=key,
            timeout=timeout,
            reuse=reuse,
            tag=tag,
            may_leave=may_leave,
            columns=columns,
            start=start,
            clip=clip,
            step_size=step_size,
            steps=steps,
            solver=solver,
            rate=rate,
            sampling=sampling,
            epochs=epochs,
            restarts=restarts,
            clip_change=clip_change,
            full_noise=full_noise,
            local_steps=local_steps,
            server_step=server_step,
            diagnostics=diagnostics,
        )

    def robust_pca(
        self,
        dataset: Any,
        columns: Sequence[str] | None = None,
        *,
        rank: int,
        epsilon: float,
        delta: float | None = None,
        key: str | None = None,
        timeout: float = 600.0,
        reuse: bool = True,
        tag: str | None = None,
        may_leave: int = 0,
        loss: Literal['absolute', 'squared', 'bounded', 'redescending'] = 'redescending',
        solver: Literal['ggd', 'sggd', 'rsvrg', 'gd-reaper', 'sgd-reaper', 'md-reaper', 'smd-reaper'] = 'ggd',
        start: Literal['random', 'analyze-gauss', 'sketch', 'reaper'] | None = None,
        consensus: bool | None = None,
        center: bool | None = None,
        steps: int | None = None,
        step_size: float | None = None,
        scale: float | None = None,
        rate: float | None = None,
        sampling: Literal['poisson', 'fixed'] = 'poisson',
        local_steps: int = 1,
        server_step: float = 1.0,
        turns: int = 1,
        halvings: int | None = None,
        epochs: int | None = None,
        explained: bool | None = None,
        adaptive: bool = True,
    ) -> answers.Subspace:
        """The private subspace that most rows lie near; see `estimate` for the arguments of all.

        Args:
            dataset: as of `estimate`.
            epsilon: as of `estimate`.
            delta: as of `estimate`.
            key: as of `estimate`.
            timeout: as of `estimate`.
            reuse: give an earlier answer of yours to the same question again, free of charge; True
                or False; by default True.
            tag: words of yours, by which lists find the question again; owners of the data read
                them, and they change nothing else; a text; optional.
            may_leave: of several datasets at sites: so many sites may stay away once the run has
                begun. The answer then goes on without their records, and states no error; a whole
                number at least 0 and at most 99; by default 0.
            columns: of a table: names of the columns; by default all; a list; optional.
            rank: dimension of the subspace; a whole number at least 1.
            loss: of a row's distance d: `absolute` d, `squared` d² (PCA), `bounded` d²/(c²+d²),
                `redescending` like d up to c and flat beyond; one of absolute, squared, bounded,
                redescending; by default redescending.
            solver: full gradients (`ggd`), random batches (`sggd`), both (`rsvrg`, with the loss
                `squared`), or descents over a convex relaxation of the subspace to a matrix, above
                300 columns to one within the span of a noisy sketch; one of ggd, sggd, rsvrg,
                gd-reaper, sgd-reaper, md-reaper, smd-reaper; by default ggd.
            start: a public random subspace, the leading one of a noisy second moment or sketch, or
                where `reaper` arrives, which is `md-reaper`; one of random, analyze-gauss, sketch,
                reaper; optional.
            consensus: choose the start, by a bounded loss, among subspaces of one with a dimension
                more; True or False; optional.
            center: estimate a centre and take it off the rows. Where all columns of a table have
                bounds it is the columns' means, for 4.5 % of the budget; elsewhere a point within
                `norm_bound` that no far row moves much, for 15 %. By default of tables alone, whose
                first direction else leads from the bounds' middles to the means; True or False;
                optional.
            steps: of the descent; of `rsvrg` in an epoch; a whole number at least 1; optional.
            step_size: of its first step; a number above 0 and at most 1000; optional.
            scale: c of the losses `bounded` and `redescending`, as a share of a row's length; a
                number above 0 and at most 1000; optional.
            rate: probability of a record in a batch; a number above 0 and at most 1; optional.
            sampling: how batches are drawn; one of poisson, fixed; by default poisson.
            local_steps: that each owner of several datasets takes by itself in a step, corrected
                for its drift; a whole number at least 1; by default 1.
            server_step: how far a round goes along the mean of the owners' own ways: larger ones
                shorten these, and leave the length of a round as it is; a number at least 0.01 and
                at most 1000; by default 1.0.
            turns: owners of several datasets take part by turns: all in the first round of the
                descent, and each in every so many-th after it. Its last answer stands for it in
                between; a whole number at least 1 and at most 100; by default 1.
            halvings: how often the descent may halve its step, by default 6 times: rows that lie on
                the subspace exactly pull as hard from near as from far, and each halving halves the
                error that they leave; a whole number at least 1 and at most 60; optional.
            epochs: of `rsvrg`: number of epochs, S; a whole number at least 1; optional.
            explained: tell also the share of variance along each direction, which is the default:
                at no cost where a second moment is released (`start` is `analyze-gauss`), else for
                5 % of the budget; True or False; optional.
            adaptive: look at noisy distances first, for a tenth of the budget at most, and take
                plain PCA (`squared`) unless some rows stand out as near a subspace. Only with the
                loss `redescending`, up to 1,000 columns, and where no solver, start or anything of
                the descent is chosen. A table with columns of yes or no or of categories has plain
                PCA at once; True or False; by default True.
        """
        return self.estimate(
            "robust-pca",
            dataset,
            rank=rank,
            epsilon=epsilon,
            delta=delta,
            key=key,
            timeout=timeout,
            reuse=reuse,
            tag=tag,
            may_leave=may_leave,
            columns=columns,
            loss=loss,
            solver=solver,
            start=start,
            consensus=consensus,
            center=center,
            steps=steps,
            step_size=step_size,
            scale=scale,
            rate=rate,
            sampling=sampling,
            local_steps=local_steps,
            server_step=server_step,
            turns=turns,
            halvings=halvings,
            epochs=epochs,
            explained=explained,
            adaptive=adaptive,
        )

    def matrix_completion(
        self,
        dataset: Any,
        columns: Sequence[str] | None = None,
        *,
        rank: int,
        epsilon: float,
        delta: float | None = None,
        key: str | None = None,
        timeout: float = 600.0,
        reuse: bool = True,
        tag: str | None = None,
        may_leave: int = 0,
        steps: int | None = None,
        step_size: float | None = None,
        local_steps: int = 1,
        server_step: float = 1.0,
        turns: int = 1,
        means: bool | None = None,
    ) -> answers.Completion:
        """The private subspace of rows with unknown entries; see `estimate` for the arguments of all.

        Args:
            dataset: as of `estimate`.
            epsilon: as of `estimate`.
            delta: as of `estimate`.
            key: as of `estimate`.
            timeout: as of `estimate`.
            reuse: give an earlier answer of yours to the same question again, free of charge; True
                or False; by default True.
            tag: words of yours, by which lists find the question again; owners of the data read
                them, and they change nothing else; a text; optional.
            may_leave: of several datasets at sites: so many sites may stay away once the run has
                begun. The answer then goes on without their records, and states no error; a whole
                number at least 0 and at most 99; by default 0.
            columns: of a table: names of the columns; by default all; a list; optional.
            rank: dimension of the subspace; a whole number at least 1.
            steps: of the descent; a whole number at least 1; optional.
            step_size: of its longest step; a number above 0 and at most 1000; optional.
            local_steps: that each owner of several datasets takes by itself in a step, corrected
                for its drift; a whole number at least 1; by default 1.
            server_step: how far a round goes along the mean of the owners' own ways: larger ones
                shorten these, and leave the length of a round as it is; a number at least 0.01 and
                at most 1000; by default 1.0.
            turns: owners of several datasets take part by turns: all in the first round of the
                descent, and each in every so many-th after it. Its last answer stands for it in
                between; a whole number at least 1 and at most 100; by default 1.
            means: fit what is left after the means of the columns, which are released, and each
                row's own mean; tell the error on entries that are held out. It takes a quarter of
                the budget. By default of tables whose columns all have bounds, where no descent is
                asked for; True or False; optional.
        """
        return self.estimate(
            "matrix-completion",
            dataset,
            rank=rank,
            epsilon=epsilon,
            delta=delta,
            key=key,
            timeout=timeout,
            reuse=reuse,
            tag=tag,
            may_leave=may_leave,
            columns=columns,
            steps=steps,
            step_size=step_size,
            local_steps=local_steps,
            server_step=server_step,
            turns=turns,
            means=means,
        )

    def logistic_regression(
        self,
        dataset: Any,
        label: str | None = None,
        features: Sequence[str] | None = None,
        *,
        epsilon: float,
        delta: float | None = None,
        key: str | None = None,
        timeout: float = 600.0,
        reuse: bool = True,
        tag: str | None = None,
        may_leave: int = 0,
        solver: Literal['newton', 'clipped', 'escape', 'spider'] | Literal['gd', 'gd-opt', 'hb', 'hb-opt', 'nag', 'nag-opt', 'masg', 'masg-opt'] | None = None,
        penalty: float | None = None,
        steps: int | None = None,
        step_scale: float | None = None,
        batch_size: int | None = None,
        intercept: bool = True,
        standardisation: Literal['public', 'private'] | None = None,
        sampling_errors: bool = False,
        loss: Literal['logistic'] | Literal['sigmoid', 'savage', 'logistic-nonconvex'] = 'logistic',
        momentum: float | None = None,
    ) -> answers.LinearClassifier:
        """A private linear classifier of labelled records; see `estimate` for the arguments of all.

        Args:
            dataset: as of `estimate`.
            epsilon: as of `estimate`.
            delta: as of `estimate`.
            key: as of `estimate`.
            timeout: as of `estimate`.
            reuse: give an earlier answer of yours to the same question again, free of charge; True
                or False; by default True.
            tag: words of yours, by which lists find the question again; owners of the data read
                them, and they change nothing else; a text; optional.
            may_leave: of several datasets at sites: so many sites may stay away once the run has
                begun. The answer then goes on without their records, and states no error; a whole
                number at least 0 and at most 99; by default 0.
            label: of a table: a column of categories, or a boolean one; a text; optional.
            features: of a table: the features; by default all other columns. A column of categories
                stands for an indicator of every category but its reference. Single ones are named
                as `species=Adelie`, those of several categories together as
                `species=Adelie|Gentoo`, and those of gaps as `sex missing`; a list; optional.
            solver: `newton` (noisy gradients and Hessians, which also tell how far off coefficients
                are), `clipped` (descent on clipped gradients, for much noise), or a descent: `gd`,
                `hb` (heavy ball), `nag` (Nesterov), `masg` (in stages of shrinking steps), of which
                `gd-opt`, `hb-opt`, `nag-opt` and `masg-opt` divide the noise and count the steps by
                the bound on their error, and `hb-opt` chooses its momentum by it; by default
                `newton` for two classes of records enough, else `clipped`. With another loss than
                `logistic` it is `escape`, or `spider` if it is asked for, which sees each record
                once and has its guarantee where there are very many; one of newton, clipped,
                escape, spider or one of gd, gd-opt, hb, hb-opt, nag, nag-opt, masg, masg-opt;
                optional.
            penalty: λ of λ|w|², for features in units of the norm bound: by default 0.01 for
                descents, and for `newton` what scikit-learn's default comes to on standardised
                features, next to none with many records, and none on the intercept; with
                `logistic-nonconvex` of λ Σ w²/(1 + w²), by default 0.001; not of `clipped` nor of
                the bounded losses; a number at least 0 and at most 1e6; optional.
            steps: of a descent; with `-opt` the most of them; a whole number at least 1; optional.
            step_scale: c of step lengths c/L; a number above 0 and at most 1; optional.
            batch_size: of a descent's random batches, expected or exact; by default all records; a
                whole number at least 1; optional.
            intercept: whether there is one; True or False; by default True.
            standardisation: of features, by the schema's `mean` and `scale`; `private` takes these
                for the middle and half the width of bounds, and 15 % of the budget to find how far
                features spread within them, or 35 % where columns of a table lack `low` or `high`;
                by default `private` on a table where the noise allows it, else `public`; one of
                public, private; optional.
            sampling_errors: learn what the sampling of rows adds to the errors: with `newton` that
                is known in any case, of other solvers it takes a fifth of the budget; True or
                False; by default False.
            loss: `sigmoid` and `savage` are bounded, so that a wrong label cannot pull for ever;
                `logistic-nonconvex` has a bounded penalty; these three are for two classes; one of
                logistic or one of sigmoid, savage, logistic-nonconvex; by default logistic.
            momentum: β of `hb` and `hb-opt`: by default the best without noise, and of `hb-opt` the
                best with it; a number at least 0 and at most 0.999; optional.
        """
        return self.estimate(
            "logistic-regression",
            dataset,
            epsilon=epsilon,
            delta=delta,
            key=key,
            timeout=timeout,
            reuse=reuse,
            tag=tag,
            may_leave=may_leave,
            label=label,
            features=features,
            solver=solver,
            penalty=penalty,
            steps=steps,
            step_scale=step_scale,
            batch_size=batch_size,
            intercept=intercept,
            standardisation=standardisation,
            sampling_errors=sampling_errors,
            loss=loss,
            momentum=momentum,
        )

    def classifier_score(
        self,
        dataset: Any,
        label: str | None = None,
        features: Sequence[str] | None = None,
        *,
        coefficients: Any,
        intercept: Any,
        epsilon: float,
        delta: float | None = None,
        key: str | None = None,
        timeout: float = 600.0,
        reuse: bool = True,
        tag: str | None = None,
        may_leave: int = 0,
        metric: Literal['accuracy', 'auc'] = 'accuracy',
    ) -> answers.Score:
        """The private accuracy, or area under the ROC curve, of a submitted linear classifier; see `estimate` for the arguments of all.

        Args:
            dataset: as of `estimate`.
            epsilon: as of `estimate`.
            delta: as of `estimate`.
            key: as of `estimate`.
            timeout: as of `estimate`.
            reuse: give an earlier answer of yours to the same question again, free of charge; True
                or False; by default True.
            tag: words of yours, by which lists find the question again; owners of the data read
                them, and they change nothing else; a text; optional.
            may_leave: of several datasets at sites: so many sites may stay away once the run has
                begun. The answer then goes on without their records, and states no error; a whole
                number at least 0 and at most 99; by default 0.
            label: of a table: a column of categories, or a boolean one; a text; optional.
            features: of a table: the features; by default all other columns. A column of categories
                stands for an indicator of every category but its reference. Single ones are named
                as `species=Adelie`, those of several categories together as
                `species=Adelie|Gentoo`, and those of gaps as `sex missing`; a list; optional.
            coefficients: a number for each feature; with more than two classes a list for each
                class; a list.
            intercept: a number; with more than two classes one for each class; a number or a list.
            metric: share of right answers, or area under the ROC curve of two classes; one of
                accuracy, auc; by default accuracy.
        """
        return self.estimate(
            "classifier-score",
            dataset,
            coefficients=coefficients,
            intercept=intercept,
            epsilon=epsilon,
            delta=delta,
            key=key,
            timeout=timeout,
            reuse=reuse,
            tag=tag,
            may_leave=may_leave,
            label=label,
            features=features,
            metric=metric,
        )

    def classifier_selection(
        self,
        dataset: Any,
        label: str | None = None,
        features: Sequence[str] | None = None,
        *,
        candidates: Any,
        epsilon: float,
        delta: float | None = None,
        key: str | None = None,
        timeout: float = 600.0,
        reuse: bool = True,
        tag: str | None = None,
        may_leave: int = 0,
    ) -> answers.SelectedClassifier:
        """The best of several linear classifiers, chosen and fitted privately; see `estimate` for the arguments of all.

        Args:
            dataset: as of `estimate`.
            epsilon: as of `estimate`.
            delta: as of `estimate`.
            key: as of `estimate`.
            timeout: as of `estimate`.
            reuse: give an earlier answer of yours to the same question again, free of charge; True
                or False; by default True.
            tag: words of yours, by which lists find the question again; owners of the data read
                them, and they change nothing else; a text; optional.
            may_leave: of several datasets at sites: so many sites may stay away once the run has
                begun. The answer then goes on without their records, and states no error; a whole
                number at least 0 and at most 99; by default 0.
            label: of a table: a column of categories, or a boolean one; a text; optional.
            features: of a table: the features; by default all other columns. A column of categories
                stands for an indicator of every category but its reference. Single ones are named
                as `species=Adelie`, those of several categories together as
                `species=Adelie|Gentoo`, and those of gaps as `sex missing`; a list; optional.
            candidates: from 2 to 20, each like a question for a logistic regression; a list.
        """
        return self.estimate(
            "classifier-selection",
            dataset,
            candidates=candidates,
            epsilon=epsilon,
            delta=delta,
            key=key,
            timeout=timeout,
            reuse=reuse,
            tag=tag,
            may_leave=may_leave,
            label=label,
            features=features,
        )

    def bounds(
        self,
        dataset: Any,
        columns: Sequence[str] | None = None,
        *,
        epsilon: float,
        delta: float | None = None,
        key: str | None = None,
        timeout: float = 600.0,
        reuse: bool = True,
        tag: str | None = None,
        may_leave: int = 0,
        point: Any = None,
    ) -> answers.Bounds:
        """Private bounds: where most values of each column are, or most distances from a point; see `estimate` for the arguments of all.

        Args:
            dataset: as of `estimate`.
            epsilon: as of `estimate`.
            delta: as of `estimate`.
            key: as of `estimate`.
            timeout: as of `estimate`.
            reuse: give an earlier answer of yours to the same question again, free of charge; True
                or False; by default True.
            tag: words of yours, by which lists find the question again; owners of the data read
                them, and they change nothing else; a text; optional.
            may_leave: of several datasets at sites: so many sites may stay away once the run has
                begun. The answer then goes on without their records, and states no error; a whole
                number at least 0 and at most 99; by default 0.
            columns: of a table: names of the columns; by default all; a list; optional.
            point: of distances on a curved space: from where, as nested lists; by default the
                public centre. Of flat space and of tables each column is told of, and there is no
                such point; a list; optional.
        """
        return self.estimate(
            "bounds",
            dataset,
            epsilon=epsilon,
            delta=delta,
            key=key,
            timeout=timeout,
            reuse=reuse,
            tag=tag,
            may_leave=may_leave,
            columns=columns,
            point=point,
        )


class AsyncEstimates(ABC):
    """As `Estimates`, in an event loop."""

    @abstractmethod
    async def estimate(self, kind: str, dataset: Any, *, epsilon: float, **choices: Any) -> Any:
        """An estimate of any kind."""

    async def frechet_mean(
        self,
        dataset: Any,
        columns: Sequence[str] | None = None,
        *,
        epsilon: float,
        delta: float | None = None,
        key: str | None = None,
        timeout: float = 600.0,
        reuse: bool = True,
        tag: str | None = None,
        may_leave: int = 0,
        start: Any = None,
        clip: float | None = None,
        step_size: float | None = None,
        steps: int | None = None,
        solver: Literal['noisy-sum', 'clipped-sum', 'rgd', 'rsgd', 'rsvrg'] | None = None,
        rate: float | None = None,
        sampling: Literal['poisson', 'fixed'] = 'poisson',
        epochs: int | None = None,
        restarts: int | None = None,
        clip_change: float | None = None,
        full_noise: Literal['epoch', 'step'] = 'epoch',
        local_steps: int = 1,
        server_step: float = 1.0,
        diagnostics: bool = True,
    ) -> answers.FrechetMean:
        """See `Client.frechet_mean`."""
        return await self.estimate(
            "frechet-mean",
            dataset,
            epsilon=epsilon,
            delta=delta,
            key=key,
            timeout=timeout,
            reuse=reuse,
            tag=tag,
            may_leave=may_leave,
            columns=columns,
            start=start,
            clip=clip,
            step_size=step_size,
            steps=steps,
            solver=solver,
            rate=rate,
            sampling=sampling,
            epochs=epochs,
            restarts=restarts,
            clip_change=clip_change,
            full_noise=full_noise,
            local_steps=local_steps,
            server_step=server_step,
            diagnostics=diagnostics,
        )

    async def robust_pca(
        self,
        dataset: Any,
        columns: Sequence[str] | None = None,
        *,
        rank: int,
        epsilon: float,
        delta: float | None = None,
        key: str | None = None,
        timeout: float = 600.0,
        reuse: bool = True,
        tag: str | None = None,
        may_leave: int = 0,
        loss: Literal['absolute', 'squared', 'bounded', 'redescending'] = 'redescending',
        solver: Literal['ggd', 'sggd', 'rsvrg', 'gd-reaper', 'sgd-reaper', 'md-reaper', 'smd-reaper'] = 'ggd',
        start: Literal['random', 'analyze-gauss', 'sketch', 'reaper'] | None = None,
        consensus: bool | None = None,
        center: bool | None = None,
        steps: int | None = None,
        step_size: float | None = None,
        scale: float | None = None,
        rate: float | None = None,
        sampling: Literal['poisson', 'fixed'] = 'poisson',
        local_steps: int = 1,
        server_step: float = 1.0,
        turns: int = 1,
        halvings: int | None = None,
        epochs: int | None = None,
        explained: bool | None = None,
        adaptive: bool = True,
    ) -> answers.Subspace:
        """See `Client.robust_pca`."""
        return await self.estimate(
            "robust-pca",
            dataset,
            rank=rank,
            epsilon=epsilon,
            delta=delta,
            key=key,
            timeout=timeout,
            reuse=reuse,
            tag=tag,
            may_leave=may_leave,
            columns=columns,
            loss=loss,
            solver=solver,
            start=start,
            consensus=consensus,
            center=center,
            steps=steps,
            step_size=step_size,
            scale=scale,
            rate=rate,
            sampling=sampling,
            local_steps=local_steps,
            server_step=server_step,
            turns=turns,
            halvings=halvings,
            epochs=epochs,
            explained=explained,
            adaptive=adaptive,
        )

    async def matrix_completion(
        self,
        dataset: Any,
        columns: Sequence[str] | None = None,
        *,
        rank: int,
        epsilon: float,
        delta: float | None = None,
        key: str | None = None,
        timeout: float = 600.0,
        reuse: bool = True,
        tag: str | None = None,
        may_leave: int = 0,
        steps: int | None = None,
        step_size: float | None = None,
        local_steps: int = 1,
        server_step: float = 1.0,
        turns: int = 1,
        means: bool | None = None,
    ) -> answers.Completion:
        """See `Client.matrix_completion`."""
        return await self.estimate(
            "matrix-completion",
            dataset,
            rank=rank,
            epsilon=epsilon,
            delta=delta,
            key=key,
            timeout=timeout,
            reuse=reuse,
            tag=tag,
            may_leave=may_leave,
            columns=columns,
            steps=steps,
            step_size=step_size,
            local_steps=local_steps,
            server_step=server_step,
            turns=turns,
            means=means,
        )

    async def logistic_regression(
        self,
        dataset: Any,
        label: str | None = None,
        features: Sequence[str] | None = None,
        *,
        epsilon: float,
        delta: float | None = None,
        key: str | None = None,
        timeout: float = 600.0,
        reuse: bool = True,
        tag: str | None = None,
        may_leave: int = 0,
        solver: Literal['newton', 'clipped', 'escape', 'spider'] | Literal['gd', 'gd-opt', 'hb', 'hb-opt', 'nag', 'nag-opt', 'masg', 'masg-opt'] | None = None,
        penalty: float | None = None,
        steps: int | None = None,
        step_scale: float | None = None,
        batch_size: int | None = None,
        intercept: bool = True,
        standardisation: Literal['public', 'private'] | None = None,
        sampling_errors: bool = False,
        loss: Literal['logistic'] | Literal['sigmoid', 'savage', 'logistic-nonconvex'] = 'logistic',
        momentum: float | None = None,
    ) -> answers.LinearClassifier:
        """See `Client.logistic_regression`."""
        return await self.estimate(
            "logistic-regression",
            dataset,
            epsilon=epsilon,
            delta=delta,
            key=key,
            timeout=timeout,
            reuse=reuse,
            tag=tag,
            may_leave=may_leave,
            label=label,
            features=features,
            solver=solver,
            penalty=penalty,
            steps=steps,
            step_scale=step_scale,
            batch_size=batch_size,
            intercept=intercept,
            standardisation=standardisation,
            sampling_errors=sampling_errors,
            loss=loss,
            momentum=momentum,
        )

    async def classifier_score(
        self,
        dataset: Any,
        label: str | None = None,
        features: Sequence[str] | None = None,
        *,
        coefficients: Any,
        intercept: Any,
        epsilon: float,
        delta: float | None = None,
        key: str | None = None,
        timeout: float = 600.0,
        reuse: bool = True,
        tag: str | None = None,
        may_leave: int = 0,
        metric: Literal['accuracy', 'auc'] = 'accuracy',
    ) -> answers.Score:
        """See `Client.classifier_score`."""
        return await self.estimate(
            "classifier-score",
            dataset,
            coefficients=coefficients,
            intercept=intercept,
            epsilon=epsilon,
            delta=delta,
            key=key,
            timeout=timeout,
            reuse=reuse,
            tag=tag,
            may_leave=may_leave,
            label=label,
            features=features,
            metric=metric,
        )

    async def classifier_selection(
        self,
        dataset: Any,
        label: str | None = None,
        features: Sequence[str] | None = None,
        *,
        candidates: Any,
        epsilon: float,
        delta: float | None = None,
        key: str | None = None,
        timeout: float = 600.0,
        reuse: bool = True,
        tag: str | None = None,
        may_leave: int = 0,
    ) -> answers.SelectedClassifier:
        """See `Client.classifier_selection`."""
        return await self.estimate(
            "classifier-selection",
            dataset,
            candidates=candidates,
            epsilon=epsilon,
            delta=delta,
            key=key,
            timeout=timeout,
            reuse=reuse,
            tag=tag,
            may_leave=may_leave,
            label=label,
            features=features,
        )

    async def bounds(
        self,
        dataset: Any,
        columns: Sequence[str] | None = None,
        *,
        epsilon: float,
        delta: float | None = None,
        key: str | None = None,
        timeout: float = 600.0,
        reuse: bool = True,
        tag: str | None = None,
        may_leave: int = 0,
        point: Any = None,
    ) -> answers.Bounds:
        """See `Client.bounds`."""
        return await self.estimate(
            "bounds",
            dataset,
            epsilon=epsilon,
            delta=delta,
            key=key,
            timeout=timeout,
            reuse=reuse,
            tag=tag,
            may_leave=may_leave,
            columns=columns,
            point=point,
        )
