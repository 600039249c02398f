# The worker: one model on one device. The package index's torch brings CUDA on Linux.
# From the repository's root: docker build -f docker/worker.Dockerfile -t pagewire/worker .
# What the arguments are for, what is in the image and how large it is: docs/images.md.

ARG PYTHON_VERSION=3.12
ARG BASE_IMAGE=docker.io/library/python:${PYTHON_VERSION}-slim

FROM ${BASE_IMAGE} AS builder
WORKDIR /src
# For the kernels for CPUs, which the installation compiles.
RUN apt-get update && apt-get install -y --no-install-recommends g++ && rm -rf /var/lib/apt/lists/*
# The environment has no pip of its own: the builder's installs into it from outside.
RUN python3 -m venv --without-pip /opt/pagewire
# torch before the sources, so that a change of those does not fetch it again. From the package index,
# unless TORCH_INDEX_URL names one of PyTorch's, such as https://download.pytorch.org/whl/cpu.
ARG TORCH="torch>=2.11,<2.14"
ARG TORCH_INDEX_URL=""
COPY docker/constraints.txt ./
RUN PIP_INDEX_URL="${TORCH_INDEX_URL:-$PIP_INDEX_URL}" \
    python3 -m pip --python /opt/pagewire/bin/python install --no-cache-dir --no-compile \
        --constraint constraints.txt "$TORCH"
COPY pyproject.toml README.md LICENSE docker/hashes/worker.txt ./
COPY shared/ shared/
COPY protos/gen/ protos/gen/
COPY services/ services/
COPY pagewire/ pagewire/
# Modules are compiled here, since nobody can write where the file system is read-only; without the
# times of their sources, which layers round. What only a newer Python understands is left out.
RUN python3 -m pip --python /opt/pagewire/bin/python install --no-cache-dir --no-compile \
        --constraint constraints.txt --require-hashes --requirement worker.txt \
    && python3 -m pip --python /opt/pagewire/bin/python install --no-cache-dir --no-compile \
        --constraint constraints.txt '.[worker]' \
    && python3 -m pip --python /opt/pagewire/bin/python list --format=freeze --exclude pagewire \
        > /opt/pagewire/requirements.txt \
    && { /opt/pagewire/bin/python -m compileall -q -f -j 0 --invalidation-mode unchecked-hash \
        /opt/pagewire/lib || true; }

FROM ${BASE_IMAGE}
ARG VERSION=unknown
ARG REVISION=unknown
LABEL org.opencontainers.image.title="pagewire-worker" \
      org.opencontainers.image.description="Pagewire worker: one model, its KV cache and its sampler" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
# Debian packages for what compiles while it runs: "gcc libc6-dev" for GPUs, where Triton does.
ARG RUNTIME_PACKAGES=""
RUN if [ -n "$RUNTIME_PACKAGES" ]; then \
        apt-get update && apt-get install -y --no-install-recommends $RUNTIME_PACKAGES \
        && rm -rf /var/lib/apt/lists/*; \
    fi
COPY --from=builder /opt/pagewire /opt/pagewire
# Whatever is written goes to the home folder: mount memory there and the rest can be read-only.
ENV PATH=/opt/pagewire/bin:$PATH \
    HOME=/tmp \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility
USER 10001:10001
WORKDIR /tmp
EXPOSE 8300 9090
STOPSIGNAL SIGTERM
ENTRYPOINT ["pagewire", "worker"]
