# docker build -t reodsl . ; with --build-arg PROFILE=cuda for GPUs: with SGLang and the compilers that
# its servers call. CUDA's libraries come with torch, Python.h with the base, the driver from the host.
# The base is fixed by the digest of its index for all platforms, so nobody can move it. The digest was read in ten public
# repositories that agree on it, the registry itself was out of reach. For a newer base: --build-arg BASE=python:3.12-slim@sha256:…
ARG BASE=python:3.12.14-slim@sha256:78387bc3881b8273120a12ebe6c1ab22b018ccc2c9adf565ae1ac9b536e184ea
FROM ${BASE}

ARG PROFILE=cpu
ENV PYTHONDONTWRITEBYTECODE=1 \
    PIP_NO_CACHE_DIR=1 \
    RAY_DEDUP_LOGS=1 \
    PATH=/opt/reodsl/.venv/bin:$PATH

RUN apt-get update \
 && apt-get install -y --no-install-recommends make git \
 && if [ "${PROFILE}" = cuda ]; then apt-get install -y --no-install-recommends g++; fi \
 && rm -rf /var/lib/apt/lists/*

WORKDIR /opt/reodsl
COPY Makefile pyproject.toml README.md LICENSE ./
COPY constraints ./constraints
COPY docs ./docs
COPY specs ./specs
COPY stdlib ./stdlib
COPY runners ./runners
COPY reodsl ./reodsl
RUN make ready PROFILE="${PROFILE}" \
 && if [ "${PROFILE}" = cuda ]; then make sglang PROFILE=cuda; fi

# A user that owns nothing: results go to the folder that is mounted.
RUN useradd --create-home reo && mkdir /work && chown reo /work
USER reo
ENV HOME=/tmp
WORKDIR /work
ENTRYPOINT ["reodsl"]
CMD ["--help"]
