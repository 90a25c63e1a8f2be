"""A notebook as a page, with the pictures that are stored in it."""

import base64
import json
from collections.abc import Iterator
from typing import Any


def page(source: str, name: str) -> tuple[str, dict[str, bytes]]:
    """The page, and its pictures by name, which lie where the notebook does.

    Args:
        source: of the notebook.
        name: of the page, with which those of its pictures begin.
    """
    parts, pictures = [], dict[str, bytes]()
    for cell in json.loads(source)["cells"]:
        text = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(text)
            continue
        parts.append(f"```python\n{text}\n```")
        parts += _outputs(cell["outputs"], pictures, name)
    return "\n\n".join(parts) + "\n", pictures


def _outputs(outputs: list[dict[str, Any]], pictures: dict[str, bytes], page_name: str) -> Iterator[str]:
    for output in outputs:
        data = output.get("data") or {"text/plain": output["text"]}  # what was printed has no other form
        if "image/png" in data:
            name = f"{page_name}-{len(pictures) + 1}.png"
            pictures[name] = base64.b64decode(data["image/png"])
            yield f"![What this draws]({name})"
        elif "text/html" in data:
            yield "".join(data["text/html"])
        else:
            yield f"```text\n{''.join(data['text/plain'])}\n```"
