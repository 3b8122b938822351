FROM python:3.12-slim AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
RUN python -m venv /opt/venv
COPY requirements.lock /srv/a2a/
RUN /opt/venv/bin/pip install --require-hashes --requirement /srv/a2a/requirements.lock
COPY . /srv/a2a/
RUN /opt/venv/bin/pip install --no-deps --no-index --no-build-isolation --editable /srv/a2a \
    && /opt/venv/bin/python -m compileall -q /srv/a2a/app

FROM python:3.12-slim
RUN useradd --system --uid 10001 --home-dir /data --create-home a2a
COPY --from=build /opt/venv /opt/venv
COPY --from=build /srv/a2a /srv/a2a
ENV PATH=/opt/venv/bin:$PATH PYTHONUNBUFFERED=1 A2A_LOG_FORMAT=json
# The embedded database, if that is the store, is kept where the server starts.
USER a2a
WORKDIR /data
VOLUME /data
EXPOSE 8000
HEALTHCHECK --interval=10s --timeout=3s --start-period=20s \
    CMD ["python", "-c", "import os, urllib.request as r; r.urlopen('http://127.0.0.1:' + os.environ.get('A2A_PORT', '8000') + '/healthz', timeout=2)"]
CMD ["a2a", "serve", "--host", "0.0.0.0"]
