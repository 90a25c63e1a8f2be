"""openapi.yaml, generated from the code."""

import yaml

from privest_service.app import create_app


def document() -> str:
    """The interface as YAML, the same bytes from the same code."""
    content = create_app(None).openapi()
    return yaml.safe_dump(content, sort_keys=False, allow_unicode=True, width=110)
