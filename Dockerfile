# One image for all of Topmast: tiers, the nodes of Ray, and clients. Which one a container is, is its command
# (see docker-compose.yml). Two more stages, `postgres` and `gateway`, are Debian's PostgreSQL and HAProxy for those who
# have no image of these.
ARG BASE=python:3.11-slim-bookworm

# --- which libraries: the same list whatever else changes in pyproject.toml, so that they are not installed anew ------------
FROM ${BASE} AS libraries
COPY pyproject.toml .
RUN python -c "import tomllib; project = tomllib.load(open('pyproject.toml', 'rb'))['project']; \
extras = [one for name in ('simulator', 'server', 's3') for one in project['optional-dependencies'][name]]; \
print(*(one for one in project['dependencies'] + extras if not one.startswith('topmast')), sep='\n')" > /libraries.txt

# --- what is installed, apart from what installs it -------------------------------------------------------------------
FROM ${BASE} AS build
WORKDIR /usr/src/topmast
RUN python -m venv /opt/topmast
COPY constraints.txt ./
COPY --from=libraries /libraries.txt ./
# A configuration of pip, where one is needed, is a secret of the build and stays out of the image:
#   docker build --secret id=pip.conf,src=$HOME/.config/pip/pip.conf .
RUN --mount=type=secret,id=pip.conf,target=/etc/pip.conf \
    /opt/topmast/bin/pip install --no-cache-dir --constraint constraints.txt --requirement libraries.txt
COPY . .
RUN --mount=type=secret,id=pip.conf,target=/etc/pip.conf \
    /opt/topmast/bin/pip install --no-cache-dir --no-deps .

# --- what both have: a user of ours, and what passes signals on ---------------------------------------------------------
FROM ${BASE} AS user
RUN apt-get update \
    && apt-get install --yes --no-install-recommends tini \
    && rm -rf /var/lib/apt/lists/* \
    && groupadd --gid 10001 topmast \
    && useradd --uid 10001 --gid topmast --no-create-home --home-dir /var/lib/topmast topmast
# Volumes that are empty take over who owns these folders, so nobody needs to be root. /tmp/ray: a node's sockets.
RUN install --directory --owner=topmast --group=topmast --mode=0700 \
    /var/lib/topmast /var/cache/topmast /srv/topmast /run/topmast /tmp/ray

# --- PostgreSQL, as the image `postgres` has it ---------------------------------------------------------------------------
FROM user AS postgres
RUN apt-get update \
    && mkdir -p /etc/postgresql-common \
    && echo 'create_main_cluster = false' > /etc/postgresql-common/createcluster.conf \
    && apt-get install --yes --no-install-recommends -o Dpkg::Options::=--force-confold postgresql-15 \
    && rm -rf /var/lib/apt/lists/* \
    && install --directory --owner=topmast --group=topmast --mode=0700 /var/lib/postgresql/data \
    && install --directory --owner=topmast --group=topmast /var/run/postgresql
COPY --chmod=0755 deploy/compose/postgres.sh /usr/local/bin/start-postgres
ENV PATH=/usr/lib/postgresql/15/bin:$PATH \
    PGDATA=/var/lib/postgresql/data
USER topmast
VOLUME /var/lib/postgresql/data
EXPOSE 5432
STOPSIGNAL SIGINT
ENTRYPOINT ["tini", "--", "start-postgres"]
CMD ["postgres"]

# --- HAProxy, as the image `haproxy` has it -------------------------------------------------------------------------------
FROM user AS gateway
RUN apt-get update \
    && apt-get install --yes --no-install-recommends haproxy \
    && rm -rf /var/lib/apt/lists/*
USER topmast
ENTRYPOINT ["tini", "--", "haproxy", "-W"]
CMD ["-f", "/usr/local/etc/haproxy/haproxy.cfg"]

# --- Prometheus, as the image `prom/prometheus` has it ---------------------------------------------------------------------
FROM user AS prometheus
RUN apt-get update \
    && apt-get install --yes --no-install-recommends prometheus \
    && rm -rf /var/lib/apt/lists/* \
    && install --directory --owner=topmast --group=topmast --mode=0700 /prometheus
USER topmast
WORKDIR /prometheus
VOLUME /prometheus
EXPOSE 9090
ENTRYPOINT ["tini", "--", "prometheus"]
CMD ["--config.file=/etc/prometheus/prometheus.yml", "--storage.tsdb.path=/prometheus"]

# --- Topmast, the last stage: what is built where none is named ------------------------------------------------------------
FROM user AS topmast
COPY --from=build /opt/topmast /opt/topmast
ENV PATH=/opt/topmast/bin:$PATH \
    TOPMAST_HOME=/var/lib/topmast \
    NUMBA_CACHE_DIR=/var/cache/topmast \
    PYTHONUNBUFFERED=1
USER topmast
WORKDIR /var/lib/topmast
# What decides is compiled once, here, so that no region compiles while it should answer. (On a machine with another
# processor it is compiled there, at the first decision.)
RUN python -m topmast_server services.runtime.kernels
VOLUME /var/lib/topmast
EXPOSE 7460

ENTRYPOINT ["tini", "--", "topmast"]
CMD ["--help"]
