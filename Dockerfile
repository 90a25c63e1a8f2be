# The service as a container: dependencies from the lock file, then the package, then a small non-root image.
# The same image is scheduler and worker of a Dask cluster (see compose.yaml): all must be of one version.
# The base is named by its digest, which scripts/pin-images looks up: without one nothing is built.
ARG PYTHON_DIGEST
FROM python:3.13-slim-trixie@${PYTHON_DIGEST} AS build
# The image never changes, so that no import need look whether a source is younger than its bytecode.
ENV UV_LINK_MODE=copy UV_PYTHON_DOWNLOADS=never UV_PROJECT_ENVIRONMENT=/opt/privest \
    UV_COMPILE_BYTECODE=1 PYC_INVALIDATION_MODE=UNCHECKED_HASH
WORKDIR /src
# The compiler of the package's own library; it stays in this stage.
# hadolint ignore=DL3008
RUN apt-get update && apt-get install -y --no-install-recommends gcc libc6-dev && rm -rf /var/lib/apt/lists/*
RUN pip install --no-cache-dir uv==0.13.8
COPY pyproject.toml uv.lock README.md LICENSE ./
COPY client/pyproject.toml client/README.md client/LICENSE client/
RUN uv sync --locked --no-default-groups --extra dask --extra otel --no-install-project
COPY hatch_build.py ./
COPY core core
COPY service service
COPY migrations migrations
RUN uv sync --locked --no-default-groups --extra dask --extra otel --no-editable
# What nothing here uses, 310 MB: autodp lists matplotlib and imports it for pictures alone; Arrow's remote calls, its
# way to S3 (obstore is ours), sources and headers; the tests of others; tables of symbols, which debuggers alone read.
# Libraries that a wheel brought along, in *.libs, stay as they are: without their symbols they cannot be loaded.
WORKDIR /opt/privest/lib/python3.13/site-packages
RUN uv pip uninstall --python /opt/privest matplotlib contourpy cycler fonttools kiwisolver pillow pyparsing \
    python-dateutil six \
  && rm -rf pyarrow/include pyarrow/src pyarrow/*flight* pyarrow/*_s3* pyarrow/*.p[xy][xdi] \
  && find . -type d -name tests -prune -exec rm -rf {} + \
  && find . -name '*.so*' -type f -not -path './*.libs/*' -exec strip --strip-unneeded {} +

FROM python:3.13-slim-trixie@${PYTHON_DIGEST}
# Uploads are parsed in a process that libseccomp shuts in. It comes with the base's apt: no image is made without.
# The base has no bytecode of Python's own library, and a read-only container would make it anew at each start.
RUN python -c 'import ctypes; ctypes.CDLL("libseccomp.so.2")' \
  && python -m compileall -q --invalidation-mode unchecked-hash -x '/(site|dist)-packages/|/(idlelib|test|turtledemo)/' \
    "$(python -c 'import os; print(os.path.dirname(os.__file__))')" \
  && groupadd --gid 10001 privest \
  && useradd --uid 10001 --gid 10001 --home-dir /data --no-create-home --shell /usr/sbin/nologin privest \
  && install --directory --owner privest --group privest --mode 700 /data
COPY --from=build /opt/privest /opt/privest
ENV PATH=/opt/privest/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 OMP_NUM_THREADS=1 \
    PRIVEST_DATA_DIR=/data
USER 10001:10001
WORKDIR /data
VOLUME /data
EXPOSE 8000
HEALTHCHECK --interval=10s --timeout=3s --start-period=20s \
  CMD ["python", "-IS", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8000/healthz', timeout=2)"]
# In the form of a list, so that the service itself is told to end, and no shell.
CMD ["privest", "serve", "--host", "0.0.0.0", "--port", "8000"]
