# The operator and the scheduler extender.
# docker build -f deploy/containers/operator.Dockerfile -t foveola/operator:0.1.0 .
FROM python:3.11.14-slim-bookworm AS build
WORKDIR /build
COPY pyproject.toml README.md ./
COPY src ./src
RUN python -m venv /opt/foveola \
    && /opt/foveola/bin/pip install --no-cache-dir '.[rollout]'

FROM python:3.11.14-slim-bookworm
COPY --from=build /opt/foveola /opt/foveola
RUN useradd --uid 10001 --no-create-home --shell /usr/sbin/nologin foveola
USER 10001
ENV PATH=/opt/foveola/bin:$PATH PYTHONDONTWRITEBYTECODE=1
ENTRYPOINT ["foveola"]
CMD ["rollout", "operate"]
