"""A Privest service from Python: data in, private estimates out, as numpy arrays with their uncertainty."""

from importlib.metadata import version

from privest_client.answers import Bounds, Completion, FrechetMean, LinearClassifier, Score, Subspace
from privest_client.async_client import AsyncClient
from privest_client.client import Client
from privest_client.data import infer
from privest_client.errors import (
    AccountFrozen,
    AnswerWithheld,
    ApprovalRefused,
    BudgetExceeded,
    DatasetInvalid,
    Forbidden,
    GrantRefuses,
    InvalidRequest,
    JobFailed,
    NotApproved,
    NotFound,
    PaceExceeded,
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
from privest_client.keeping import load
from privest_client.operations import question
from privest_client.showing import Budget, Dataset, Plan, Prices
from privest_client.tables import Table, table

__version__ = version("privest-client")
"""The version of this package."""

__all__ = [
    "AccountFrozen",
    "AnswerWithheld",
    "ApprovalRefused",
    "AsyncClient",
    "Bounds",
    "Budget",
    "BudgetExceeded",
    "Client",
    "Completion",
    "Dataset",
    "DatasetInvalid",
    "Forbidden",
    "FrechetMean",
    "GrantRefuses",
    "InvalidRequest",
    "JobFailed",
    "LinearClassifier",
    "NotApproved",
    "NotFound",
    "PaceExceeded",
    "Plan",
    "Prices",
    "PrivestError",
    "Problem",
    "SchemaMismatch",
    "Score",
    "StillRunning",
    "Subspace",
    "Table",
    "TooLarge",
    "TooManyRequests",
    "Unauthenticated",
    "Unavailable",
    "UnexpectedAnswer",
    "Unreachable",
    "__version__",
    "infer",
    "load",
    "question",
    "table",
]
