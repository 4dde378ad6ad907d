# docker build -t reodsl . ; with --build-arg PROFILE=cuda for GPUs. CUDA's libraries come with torch, the driver from the host.
# The base is a tag, which its publisher can move: no digest is written here because none could be looked up where this file
# was made. Name one that you have checked: --build-arg BASE=python:3.12-slim@sha256:…
ARG BASE=python:3.12-slim
FROM ${BASE}

ARG PROFILE=cpu
ENV PYTHONDONTWRITEBYTECODE=1 \
    PIP_NO_CACHE_DIR=1 \
    RAY_DEDUP_LOGS=1 \
    PATH=/opt/reodsl/.venv/bin:$PATH

RUN apt-get update \
 && apt-get install -y --no-install-recommends make git \
 && rm -rf /var/lib/apt/lists/*

WORKDIR /opt/reodsl
COPY Makefile pyproject.toml README.md LICENSE ./
COPY constraints ./constraints
COPY specs ./specs
COPY stdlib ./stdlib
COPY runners ./runners
COPY reodsl ./reodsl
RUN make ready PROFILE=${PROFILE}

# A user that owns nothing: results go to the folder that is mounted.
RUN useradd --create-home reo && mkdir /work && chown reo /work
USER reo
ENV HOME=/tmp
WORKDIR /work
ENTRYPOINT ["reodsl"]
CMD ["--help"]
