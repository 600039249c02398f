# The scheduler: queues, block tables and steps of a cell. No torch, no tokenizers.
# From the repository's root: docker build -f docker/scheduler.Dockerfile -t pagewire/scheduler .
# What the arguments are for, what is in the image and how large it is: docs/images.md.

ARG PYTHON_VERSION=3.12
ARG BASE_IMAGE=docker.io/library/python:${PYTHON_VERSION}-slim

FROM ${BASE_IMAGE} AS builder
WORKDIR /src
# The environment has no pip of its own: the builder's installs into it from outside.
RUN python3 -m venv --without-pip /opt/pagewire
COPY pyproject.toml README.md LICENSE docker/constraints.txt docker/hashes/scheduler.txt ./
COPY shared/ shared/
COPY protos/gen/ protos/gen/
COPY services/ services/
COPY pagewire/ pagewire/
# The built-in model is for workers and frontends.
RUN rm -r pagewire/builtin_*
# Modules are compiled here, since nobody can write where the file system is read-only; without the
# times of their sources, which layers round. What only a newer Python understands is left out.
RUN python3 -m pip --python /opt/pagewire/bin/python install --no-cache-dir --no-compile \
        --constraint constraints.txt --require-hashes --requirement scheduler.txt \
    && python3 -m pip --python /opt/pagewire/bin/python install --no-cache-dir --no-compile \
        --constraint constraints.txt '.[scheduler,certs,events]' \
    && python3 -m pip --python /opt/pagewire/bin/python list --format=freeze --exclude pagewire \
        > /opt/pagewire/requirements.txt \
    && { /opt/pagewire/bin/python -m compileall -q -f -j 0 --invalidation-mode unchecked-hash \
        /opt/pagewire/lib || true; }

FROM ${BASE_IMAGE}
ARG VERSION=unknown
ARG REVISION=unknown
LABEL org.opencontainers.image.title="pagewire-scheduler" \
      org.opencontainers.image.description="Pagewire scheduler: queues, block tables and steps of one cell" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
COPY --from=builder /opt/pagewire /opt/pagewire
# For `pagewire certs` of the compose file: a new volume takes the owner of the folder that it is mounted on.
RUN install -d -o 10001 -g 10001 -m 0700 /certs
# Whatever is written goes to the home folder: mount memory there and the rest can be read-only.
ENV PATH=/opt/pagewire/bin:$PATH \
    HOME=/tmp \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
USER 10001:10001
WORKDIR /tmp
EXPOSE 8100 9090
STOPSIGNAL SIGTERM
ENTRYPOINT ["pagewire", "scheduler"]
