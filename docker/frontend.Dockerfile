# The frontend: HTTP and gRPC APIs, tokenizers, open streams. No torch, no transformers.
# From the repository's root: docker build -f docker/frontend.Dockerfile -t pagewire/frontend .
# What the arguments are for, what is in the image and how large it is: docs/images.md.

ARG PYTHON_VERSION=3.12
ARG BASE_IMAGE=docker.io/library/python:${PYTHON_VERSION}-slim

FROM ${BASE_IMAGE} AS builder
WORKDIR /src
# The environment has no pip of its own: the builder's installs into it from outside.
RUN python3 -m venv --without-pip /opt/pagewire
COPY pyproject.toml README.md LICENSE docker/constraints.txt docker/hashes/frontend.txt ./
COPY shared/ shared/
COPY protos/gen/ protos/gen/
COPY services/ services/
COPY pagewire/ pagewire/
# Of the built-in model it takes the tokenizer, not the weights.
RUN rm pagewire/builtin_*/*.safetensors
# Modules are compiled here, since nobody can write where the file system is read-only; without the
# times of their sources, which layers round. What only a newer Python understands is left out.
RUN python3 -m pip --python /opt/pagewire/bin/python install --no-cache-dir --no-compile \
        --constraint constraints.txt --require-hashes --requirement frontend.txt \
    && python3 -m pip --python /opt/pagewire/bin/python install --no-cache-dir --no-compile \
        --constraint constraints.txt '.[frontend,otel]' \
    && python3 -m pip --python /opt/pagewire/bin/python list --format=freeze --exclude pagewire \
        > /opt/pagewire/requirements.txt \
    && { /opt/pagewire/bin/python -m compileall -q -f -j 0 --invalidation-mode unchecked-hash \
        /opt/pagewire/lib || true; }

FROM ${BASE_IMAGE}
ARG VERSION=unknown
ARG REVISION=unknown
LABEL org.opencontainers.image.title="pagewire-frontend" \
      org.opencontainers.image.description="Pagewire frontend: HTTP and gRPC APIs, tokenizers, open streams" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
COPY --from=builder /opt/pagewire /opt/pagewire
# Whatever is written goes to the home folder: mount memory there and the rest can be read-only.
ENV PATH=/opt/pagewire/bin:$PATH \
    HOME=/tmp \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
USER 10001:10001
WORKDIR /tmp
EXPOSE 8000 8001 9090
STOPSIGNAL SIGTERM
ENTRYPOINT ["pagewire", "frontend"]
