# One image for every tier: which one a container is, is its command (see docker-compose.yml).
FROM python:3.11-slim-bookworm

# A configuration of pip, where one is needed, is a secret of the build and stays out of the image:
#   docker build --secret id=pip.conf,src=$HOME/.config/pip/pip.conf .
WORKDIR /usr/src/topmast
COPY . .
RUN --mount=type=secret,id=pip.conf,target=/etc/pip.conf \
    python -m pip install --no-cache-dir --constraint constraints.txt '.[server]' \
    && rm -rf build *.egg-info

RUN useradd --system --no-create-home --home-dir /var/lib/topmast topmast \
    && install --directory --owner=topmast /var/lib/topmast /var/cache/topmast
USER topmast
ENV TOPMAST_HOME=/var/lib/topmast \
    NUMBA_CACHE_DIR=/var/cache/topmast \
    PYTHONUNBUFFERED=1
WORKDIR /var/lib/topmast
# What decides is compiled once, here, so that no region compiles while it should answer. (On a machine with another
# processor it is compiled there, at the first decision.)
RUN python -m topmast_server services.runtime.kernels
VOLUME /var/lib/topmast
EXPOSE 7460

ENTRYPOINT ["topmast"]
CMD ["--help"]
