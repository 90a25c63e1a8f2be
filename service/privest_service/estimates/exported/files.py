"""Models as files of a format."""

from typing import Literal

from privest_service.estimates.exported.cards import SignedModel
from privest_service.estimates.exported.linear import linear_of
from privest_service.estimates.exported.onnx_graph import onnx_file
from privest_service.estimates.exported.pmml_document import pmml_file
from privest_service.jobs.models import Job

Format = Literal["json", "onnx", "pmml"]


def written(job: Job, told: SignedModel, form: Format) -> tuple[bytes, str]:
    """A model as a file of a format, and its media type.

    Raises:
        Invalid: the format is for classifiers, or this service has it not.
    """
    if form == "json":
        return told.model_dump_json().encode(), "application/json"
    linear = linear_of(job, told.model)
    if form == "onnx":
        return onnx_file(linear, told.texts), "application/octet-stream"
    return pmml_file(linear, told.texts), "application/xml"
