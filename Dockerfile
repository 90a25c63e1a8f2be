# The service as a container: dependencies from the lock file, then the package, then a small non-root image.
# The same image is scheduler and worker of a Dask cluster (see compose.yaml): all must be of one version.
# The base is named by its digest, which scripts/pin-images looks up: without one nothing is built.
ARG PYTHON_DIGEST
FROM python:3.13-slim-trixie@${PYTHON_DIGEST} AS build
ENV UV_LINK_MODE=copy UV_PYTHON_DOWNLOADS=never UV_PROJECT_ENVIRONMENT=/opt/privest
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
# What nothing here uses: autodp lists matplotlib and imports it for pictures alone; Arrow's remote calls, ways to
# stores (obstore is ours), further formats and second copies; what compilers and type checkers read; the tests of
# others; tables of symbols, which debuggers alone read. Libraries that a wheel brought along, in *.libs, stay as they
# are: without their symbols they cannot be loaded. Of others' modules the bytecode stays: errors name files and lines.
WORKDIR /opt/privest/lib/python3.13/site-packages
RUN uv pip uninstall --python /opt/privest matplotlib contourpy cycler fonttools kiwisolver pillow pyparsing \
    python-dateutil six \
  && rm -rf pyarrow/include pyarrow/src pyarrow/*flight* pyarrow/*_s3* pyarrow/_gcsfs* pyarrow/_azurefs* \
    pyarrow/_hdfs* pyarrow/*_orc* pyarrow/_substrait* pyarrow/*_cpp_tests* pyarrow/libarrow_python*.so \
    pyarrow/libarrow_python*.so.*.*.* sqlalchemy/testing scipy/io numpy/_core/_simd* \
  && find . -type d -name tests -prune -exec rm -rf {} + \
  && find . -type f -regex '.*\.\(pyi\|py[xd]\|px[di]\|h\|hpp\|c\|cc\|cpp\|f\|f90\|a\)' -delete \
  && find . -name '*.so*' -type f -not -path './*.libs/*' -exec strip --strip-unneeded {} + \
  && find . -name __pycache__ -prune -exec rm -rf {} + \
  && python -m compileall -q --invalidation-mode unchecked-hash ./privest* \
  && python -W ignore -m compileall -q -b --invalidation-mode unchecked-hash -x '^\./privest' . \
  && find . -name '*.py' -not -path './privest*' -delete

FROM python:3.13-slim-trixie@${PYTHON_DIGEST} AS system
# Uploads are parsed in a process that libseccomp shuts in. It comes with the base's apt: no image is made without.
# The base has no bytecode of Python's own library, and a read-only container would make it anew at each start.
# The image never changes, so that no import need look whether a source is younger than its bytecode.
# What Python does not need to run goes last, with the shell: nothing can be run in this stage from then on.
COPY scripts/strip-system /
RUN --mount=type=bind,from=build,source=/opt/privest,target=/opt/privest \
  python -c 'import ctypes; ctypes.CDLL("libseccomp.so.2")' \
  && groupadd --gid 10001 privest \
  && useradd --uid 10001 --gid 10001 --home-dir /data --no-create-home --shell /usr/sbin/nologin privest \
  && install --directory --owner privest --group privest --mode 700 /data \
  && python -m compileall -q --invalidation-mode unchecked-hash -x '/(site|dist)-packages/|/(idlelib|test|turtledemo)/' \
    "$(python -c 'import os; print(os.path.dirname(os.__file__))')" \
  && exec python /strip-system /opt/privest

FROM scratch
# It is what is left of the base: in a layer upon it, what was taken away would still be there.
# hadolint ignore=DL3067
COPY --from=system / /
COPY --from=build /opt/privest /opt/privest
ENV PATH=/opt/privest/bin:/usr/local/bin:/usr/bin LANG=C.UTF-8 PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 \
    OMP_NUM_THREADS=1 PRIVEST_DATA_DIR=/data
USER 10001:10001
WORKDIR /data
VOLUME /data
EXPOSE 8000
HEALTHCHECK --interval=10s --timeout=3s --start-period=20s \
  CMD ["python", "-IS", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8000/healthz', timeout=2)"]
# In the form of a list, so that the service itself is told to end, and no shell.
CMD ["privest", "serve", "--host", "0.0.0.0", "--port", "8000"]
