# The service as a container: dependencies from the lock file, then the package, then a small non-root image.
FROM python:3.13-slim-trixie AS build
ENV UV_LINK_MODE=copy UV_COMPILE_BYTECODE=1 UV_PYTHON_DOWNLOADS=never UV_PROJECT_ENVIRONMENT=/opt/privest
WORKDIR /src
RUN pip install --no-cache-dir uv==0.13.8
COPY pyproject.toml uv.lock README.md ./
RUN uv sync --locked --no-default-groups --no-install-project
COPY core core
COPY service service
COPY migrations migrations
RUN uv sync --locked --no-default-groups --no-editable

FROM python:3.13-slim-trixie
RUN useradd --system --uid 10001 --home-dir /data --create-home privest
COPY --from=build /opt/privest /opt/privest
ENV PATH=/opt/privest/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 PRIVEST_DATA_DIR=/data
USER 10001
WORKDIR /data
VOLUME /data
EXPOSE 8000
HEALTHCHECK --interval=10s --timeout=3s --start-period=20s \
  CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8000/healthz', timeout=2)"]
CMD ["privest", "serve", "--host", "0.0.0.0", "--port", "8000"]
