# Two images from one file: `--target api` (no torch) and `--target worker`.
FROM python:3.11-slim AS base
ENV PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 PIP_NO_CACHE_DIR=1
RUN useradd --create-home --uid 10001 debias && mkdir /data && chown debias /data
ENV DEBIAS_HOME=/data
WORKDIR /src
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY app app
COPY workers workers
COPY debias_client debias_client
COPY migrations migrations

FROM base AS api
RUN pip install -c constraints.txt '.[api]'
USER debias
EXPOSE 8000
HEALTHCHECK CMD ["python", "-c", "import httpx; httpx.get('http://127.0.0.1:8000/livez').raise_for_status()"]
CMD ["debias", "api", "--host", "0.0.0.0", "--port", "8000"]

FROM base AS worker
RUN pip install -c constraints.txt '.[worker]'
USER debias
# A drain may take DEBIAS_DRAIN_TIMEOUT_S; give the container longer before it is killed.
STOPSIGNAL SIGTERM
# The root file system is read-only in docker-compose.yml.
ENV MPLCONFIGDIR=/tmp/matplotlib
CMD ["debias", "worker", "--classes", "cpu"]
