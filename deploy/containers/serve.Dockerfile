# The server: nothing of the workshop, no shell needed, an unprivileged user, a read-only root file system.
# docker build -f deploy/containers/serve.Dockerfile -t foveola/serve:0.1.0 .
FROM python:3.11.14-slim-bookworm AS build
WORKDIR /build
COPY pyproject.toml README.md ./
COPY src ./src
RUN python -m venv /opt/foveola \
    && /opt/foveola/bin/pip install --no-cache-dir .

FROM python:3.11.14-slim-bookworm
COPY --from=build /opt/foveola /opt/foveola
RUN useradd --uid 10001 --no-create-home --shell /usr/sbin/nologin foveola
USER 10001
ENV PATH=/opt/foveola/bin:$PATH PYTHONDONTWRITEBYTECODE=1 HF_HUB_OFFLINE=1 FOVEOLA_SERVE_HOST=0.0.0.0
EXPOSE 8080
ENTRYPOINT ["foveola"]
CMD ["serve"]
