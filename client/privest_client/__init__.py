"""A Privest service from Python: data in, private estimates out, as numpy arrays with their uncertainty."""

from privest_client.answers import Completion, FrechetMean, LinearClassifier, Score, Subspace
from privest_client.client import AsyncClient, Client
from privest_client.data import infer
from privest_client.errors import (
    AccountFrozen,
    AnswerWithheld,
    BudgetExceeded,
    DatasetInvalid,
    Forbidden,
    InvalidRequest,
    JobFailed,
    NotFound,
    PrivestError,
    Problem,
    SchemaMismatch,
    StillRunning,
    TooLarge,
    TooManyRequests,
    Unauthenticated,
    Unavailable,
    UnexpectedAnswer,
    Unreachable,
)
from privest_client.showing import Budget, Plan

__all__ = [
    "AccountFrozen",
    "AnswerWithheld",
    "AsyncClient",
    "Budget",
    "BudgetExceeded",
    "Client",
    "Completion",
    "DatasetInvalid",
    "Forbidden",
    "FrechetMean",
    "InvalidRequest",
    "JobFailed",
    "LinearClassifier",
    "NotFound",
    "Plan",
    "PrivestError",
    "Problem",
    "SchemaMismatch",
    "Score",
    "StillRunning",
    "Subspace",
    "TooLarge",
    "TooManyRequests",
    "Unauthenticated",
    "Unavailable",
    "UnexpectedAnswer",
    "Unreachable",
    "infer",
]
